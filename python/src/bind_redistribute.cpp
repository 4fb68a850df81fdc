// Redistribution: _penstock.Redistribution, the volumes and the relabeling.
#include <complex>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "pending_request.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "penstock/redistribute.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

RelabelPolicy policy_from_name(const std::string& name) {
  if (name == "never") return RelabelPolicy::never;
  if (name == "worthwhile") return RelabelPolicy::worthwhile;
  if (name == "always") return RelabelPolicy::always;
  throw Error(ErrorCode::invalid_argument,
              "relabel is '" + name + "'; expected True, False, 'never', 'worthwhile' or 'always'");
}

/// Names of the element types.
struct Names {
  std::string source;
  std::string target;
};

/// How to relabel, and by which cost; None for the volume.
struct Relabel {
  std::string policy;
  nb::handle cost;
};

RedistributionOptions options_of(const Names& dtypes, const std::string& op, const Relabel& how) {
  RedistributionOptions options;
  options.relabel = policy_from_name(how.policy);
  if (!how.cost.is_none()) options.cost = nb::cast<const TransferCost&>(how.cost);
  options.source_dtype = dtype_from_name(dtypes.source);
  options.dtype = dtype_from_name(dtypes.target);
  options.op = matrix_op_from_name(op);
  return options;
}

RedistributionBatch plan_batch(Comm& comm, const std::vector<const Layout*>& sources,
                               const std::vector<const Layout*>& targets,
                               const std::pair<std::string, std::string>& dtypes, const std::string& op,
                               const std::string& relabel, nb::handle cost, const std::string& failure) {
  std::optional<Error> wrong;
  std::vector<LayoutPair> pairs;
  RedistributionOptions options;
  try {
    if (!failure.empty()) throw Error(ErrorCode::invalid_argument, failure);
    options = options_of({dtypes.first, dtypes.second}, op, {relabel, cost});
    for (std::size_t i = 0; i < sources.size(); ++i) pairs.push_back({*sources[i], *targets.at(i)});
  } catch (const Error& error) {
    wrong = error;
  }
  const nb::gil_scoped_release released;
  comm.agree([&] {
    if (wrong) throw *wrong;
  });
  return {comm, std::move(pairs), options};
}

/// Collective. A caller who already knows that its arguments are wrong says so in `failure` instead of staying away.
Redistribution plan(Comm& comm, nb::handle source, nb::handle target, const std::pair<std::string, std::string>& dtypes,
                    const std::string& op, const std::string& relabel, nb::handle cost,
                    const std::vector<std::vector<std::int64_t>>& part, const std::vector<std::int64_t>& leading,
                    const std::string& failure) {
  std::optional<Error> wrong;
  std::optional<Layout> from;
  std::optional<Layout> to;
  RedistributionOptions options;
  try {
    if (!failure.empty()) throw Error(ErrorCode::invalid_argument, failure);
    from = nb::cast<const Layout&>(source);
    to = nb::cast<const Layout&>(target);
    options = options_of({dtypes.first, dtypes.second}, op, {relabel, cost});
    options.source_begin = part.at(0);
    options.target_begin = part.at(1);
    options.shape = part.at(2);
    options.source_leading_elems = leading.at(0);
    options.target_leading_elems = leading.at(1);
  } catch (const Error& error) {
    wrong = error;
  }
  const nb::gil_scoped_release released;
  comm.agree([&] {
    if (wrong) throw *wrong;
  });
  return {comm, *from, *to, options};
}

struct Expected {
  const Layout& layout;
  std::int64_t leading_elems;
  DType dtype;
  std::uint64_t size_bytes;
};

ArrayView local_part(nb::handle given, Access access, const char* argument, const Expected& what, int rank) {
  const auto& [layout, leading_elems, dtype, expected_bytes] = what;
  ArrayView part = view(given, access, argument);
  const auto refuse = [&](const std::string& has, const std::string& expected) {
    throw Error(ErrorCode::invalid_argument, std::string(argument) + " " + has + "; expected " + expected);
  };
  if (part.dtype() != dtype)
    refuse("holds " + std::string(name(part.dtype())), std::string(name(dtype)) + ", as planned");
  const std::uint64_t expected = expected_bytes / size_bytes(dtype);
  if (part.count() != expected)
    refuse("has " + std::to_string(part.count()) + " elements",
           std::to_string(expected) + ", what the layout gives to rank " + std::to_string(rank));
  if (part.shape().size() < 2 || expected == 0) return part;
  const bool row_major = layout.storage() == Order::row_major;
  std::vector<std::int64_t> shape = layout.local_shape(rank);
  if (leading_elems != 0) shape[row_major ? 1 : 0] = leading_elems;
  if (part.shape() != shape)
    refuse("has another shape", "the layout's local_shape of this rank, with its leading dimension if there is one");
  if (!(row_major ? part.c_contiguous() : part.fortran_contiguous()))
    refuse("lies in the wrong order", row_major ? "C order" : "Fortran order, since the layout's storage is 'column'");
  return part;
}

std::complex<double> factor(nb::handle given, const char* argument) {
  const Py_complex value = PyComplex_AsCComplex(given.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw Error(ErrorCode::invalid_argument, std::string(argument) + " is no number");
  }
  return {value.real, value.imag};
}

PendingRequest start_batch(const RedistributionBatch& batch, int rank, nb::handle sources, nb::handle targets,
                           nb::handle alpha, nb::handle beta) {
  std::vector<ArrayView> arrays;
  std::vector<ConstBytes> inputs;
  std::vector<Bytes> outputs;
  std::complex<double> factors[2];
  const DType dtype = batch.options().dtype;
  const DType input_dtype = batch.options().input_dtype();
  try {
    for (const nb::handle source : nb::borrow<nb::list>(sources)) {
      if (inputs.size() == batch.size()) break;
      const LayoutPair& pair = batch.pairs()[inputs.size()];
      const Expected expected{pair.source, 0, input_dtype, batch.local_input_bytes(inputs.size())};
      inputs.push_back(arrays.emplace_back(local_part(source, Access::read, "source", expected, rank)).bytes());
    }
    for (const nb::handle target : nb::borrow<nb::list>(targets)) {
      if (outputs.size() == batch.size()) break;
      const LayoutPair& pair = batch.pairs()[outputs.size()];
      const Expected expected{pair.target, 0, dtype, batch.local_output_bytes(outputs.size())};
      outputs.push_back(
          arrays.emplace_back(local_part(target, Access::write, "target", expected, rank)).writable_bytes());
    }
    factors[0] = factor(alpha, "alpha");
    factors[1] = factor(beta, "beta");
  } catch (const Error& error) {
    batch.fail(error.message());
    throw;
  }
  Request request;
  {
    const nb::gil_scoped_release released;
    request = batch.start(inputs, outputs, factors[0], factors[1]);
  }
  return {std::move(request), std::move(arrays)};
}

PendingRequest start(const Redistribution& redistribution, int rank, nb::handle source, nb::handle target,
                     nb::handle alpha, nb::handle beta) {
  ArrayView input;
  ArrayView output;
  std::complex<double> factors[2];
  const RedistributionOptions& options = redistribution.options();
  try {
    input = local_part(source, Access::read, "source",
                       {redistribution.source(), options.source_leading_elems, options.input_dtype(),
                        redistribution.local_input_bytes()},
                       rank);
    output = local_part(
        target, Access::write, "target",
        {redistribution.target(), options.target_leading_elems, options.dtype, redistribution.local_output_bytes()},
        rank);
    factors[0] = factor(alpha, "alpha");
    factors[1] = factor(beta, "beta");
  } catch (const Error& error) {
    redistribution.fail(error.message());
    throw;
  }
  Request request;
  {
    const nb::gil_scoped_release released;
    request = redistribution.start(input.bytes(), output.writable_bytes(), factors[0], factors[1]);
  }
  return {std::move(request), std::move(input), std::move(output)};
}

nb::tuple facts_of(const Relabeling& found) {
  return nb::make_tuple(found.permutation, found.bytes_before, found.bytes_after, found.cost_before, found.cost_after,
                        found.skipped);
}

nb::tuple relabel_of(const Layout& source, const Layout& target, std::size_t element_bytes, const std::string& op,
                     std::int32_t ranks, const std::string& policy, nb::handle cost) {
  RelabelOptions options{.element_bytes = element_bytes, .op = matrix_op_from_name(op), .ranks = ranks};
  options.policy = policy_from_name(policy);
  if (!cost.is_none()) options.cost = nb::cast<const TransferCost&>(cost);
  Relabeling result;
  {
    const nb::gil_scoped_release released;
    result = relabel(source, target, options);
  }
  return facts_of(result);
}

using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// Calls `function` with the source ranks and the bytes of the packages, for one number of each rank.
TransferCost cost_of_parts(const nb::object& function) {
  const std::shared_ptr<nb::object> kept(new nb::object(function), [](nb::object* object) {
    const nb::gil_scoped_acquire acquired;
    delete object;
  });
  return TransferCost::parts([kept](std::span<const TransferPackage> packages, std::span<double> cost) {
    const nb::gil_scoped_acquire acquired;
    try {
      std::vector<std::int64_t> sources;
      std::vector<std::uint64_t> bytes;
      for (const TransferPackage& package : packages) {
        sources.push_back(package.source);
        bytes.push_back(package.bytes);
      }
      const nb::object given = (*kept)(sources, bytes, cost.size());
      const Numbers numbers = nb::cast<Numbers>(given);
      if (numbers.shape(0) != cost.size())
        throw Error(ErrorCode::invalid_argument, "relabel: the cost function gave " + std::to_string(numbers.shape(0)) +
                                                     " costs, expected one for each of " + std::to_string(cost.size()) +
                                                     " ranks");
      for (std::size_t r = 0; r < cost.size(); ++r) cost[r] += numbers.data()[r];
    } catch (const Error&) {
      throw;
    } catch (const nb::python_error& error) {
      throw Error(ErrorCode::invalid_argument,
                  std::string("relabel: the cost function failed: ") + nb::str(error.value()).c_str());
    } catch (const nb::cast_error&) {
      throw Error(ErrorCode::invalid_argument, "relabel: the cost function gave no array of float64");
    }
  });
}

using Volumes = nb::ndarray<nb::numpy, std::int64_t, nb::shape<-1, 3>>;

Volumes volumes_of(const Layout& source, const Layout& target, const std::string& op) {
  auto rows = std::make_unique<std::vector<std::int64_t>>();
  {
    const nb::gil_scoped_release released;
    const std::vector<PairVolume> volumes = transfer_volumes(source, target, matrix_op_from_name(op));
    rows->reserve(3 * volumes.size());
    for (const PairVolume& volume : volumes) rows->insert(rows->end(), {volume.source, volume.target, volume.elems});
  }
  std::vector<std::int64_t>* const data = rows.release();
  const nb::capsule owner(data, [](void* memory) noexcept { delete static_cast<std::vector<std::int64_t>*>(memory); });
  return Volumes(data->data(), {data->size() / 3, 3}, owner);
}

using Weights = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::vector<std::int32_t> assign(const Weights& weights) {
  const std::size_t n = weights.shape(0);
  const nb::gil_scoped_release released;
  return assign_max_weight(static_cast<std::int32_t>(n), {weights.data(), n * weights.shape(1)});
}

std::vector<std::int32_t> assign_sparse(std::int32_t n, const std::vector<std::int32_t>& rows,
                                        const std::vector<std::int32_t>& columns,
                                        const std::vector<std::int64_t>& values) {
  std::vector<SparseWeight> weights;
  for (std::size_t i = 0; i < rows.size(); ++i) weights.push_back({rows[i], columns.at(i), values.at(i)});
  const nb::gil_scoped_release released;
  return assign_max_weight_sparse(n, weights);
}

}  // namespace
}  // namespace penstock::python

void bind_redistribute(nb::module_& module) {
  using namespace penstock;
  nb::class_<Redistribution>(module, "Redistribution")
      .def_prop_ro("source", [](const Redistribution& planned) { return planned.source(); })
      .def_prop_ro("target", [](const Redistribution& planned) { return planned.target(); })
      .def_prop_ro("relabeling", [](const Redistribution& planned) { return python::facts_of(planned.relabeling()); })
      .def("text", [](const Redistribution& planned) { return to_text(planned.plan()); })
      .def("json", [](const Redistribution& planned) { return to_json(planned.plan()); })
      .def("fail", &Redistribution::fail)
      .def("start", &python::start, nb::arg("rank"), nb::arg("source").none(), nb::arg("target").none(),
           nb::arg("alpha").none(), nb::arg("beta").none())
      .def(
          "run",
          [](const Redistribution& planned, int rank, nb::handle source, nb::handle target, nb::handle alpha,
             nb::handle beta) { python::start(planned, rank, source, target, alpha, beta).wait(); },
          nb::arg("rank"), nb::arg("source").none(), nb::arg("target").none(), nb::arg("alpha").none(),
          nb::arg("beta").none());
  nb::class_<RedistributionBatch>(module, "RedistributionBatch")
      .def("__len__", &RedistributionBatch::size)
      .def_prop_ro("sources",
                   [](const RedistributionBatch& batch) {
                     std::vector<Layout> sources;
                     for (const LayoutPair& pair : batch.pairs()) sources.push_back(pair.source);
                     return sources;
                   })
      .def_prop_ro("targets",
                   [](const RedistributionBatch& batch) {
                     std::vector<Layout> targets;
                     for (const LayoutPair& pair : batch.pairs()) targets.push_back(pair.target);
                     return targets;
                   })
      .def_prop_ro("relabelings",
                   [](const RedistributionBatch& batch) {
                     nb::list relabelings;
                     for (const Relabeling& each : batch.relabelings()) relabelings.append(python::facts_of(each));
                     return relabelings;
                   })
      .def("text", [](const RedistributionBatch& batch) { return to_text(batch.plan()); })
      .def("json", [](const RedistributionBatch& batch) { return to_json(batch.plan()); })
      .def("fail", &RedistributionBatch::fail)
      .def("start", &python::start_batch, nb::arg("rank"), nb::arg("sources"), nb::arg("targets"),
           nb::arg("alpha").none(), nb::arg("beta").none());
  module.def("plan_batch", &python::plan_batch, nb::arg("comm"), nb::arg("sources"), nb::arg("targets"),
             nb::arg("dtypes"), nb::arg("op"), nb::arg("relabel"), nb::arg("cost").none(), nb::arg("failure"));
  // Whatever is wrong must become an Error on all ranks, so None comes as far as the functions that say so.
  module.def("plan_redistribute", &python::plan, nb::arg("comm"), nb::arg("source").none(), nb::arg("target").none(),
             nb::arg("dtypes"), nb::arg("op"), nb::arg("relabel"), nb::arg("cost").none(), nb::arg("part"),
             nb::arg("leading"), nb::arg("failure"));
  nb::class_<TransferCost>(module, "TransferCost")
      .def(nb::init<>())
      .def_static("pairs", &TransferCost::pairs)
      .def_static("nodes", &TransferCost::nodes)
      .def_static("parts", &python::cost_of_parts)
      .def("with_transformation", &TransferCost::with_transformation);
  module.def("relabel", &python::relabel_of, nb::arg("source"), nb::arg("target"), nb::arg("element_bytes"),
             nb::arg("op"), nb::arg("ranks"), nb::arg("policy"), nb::arg("cost").none());
  module.def("transfer_volumes", &python::volumes_of);
  module.def("assign_max_weight", &python::assign);
  module.def("assign_max_weight_sparse", &python::assign_sparse);
}
