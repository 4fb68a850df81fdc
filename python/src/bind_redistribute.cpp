// _penstock.Redistribution, and the volumes and relabeling of redistributions.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
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

/// Names of the two element types.
struct Names {
  std::string source;
  std::string target;
};

/// How to relabel, and the cost to minimize; without a cost, the volume.
struct Relabel {
  std::string policy;
  nb::handle cost;
  bool jointly = false;
};

RedistributionOptions options_of(const Names& dtypes, const std::string& op, const Relabel& how) {
  RedistributionOptions options;
  options.relabel = policy_from_name(how.policy);
  options.relabel_jointly = how.jointly;
  if (!how.cost.is_none()) options.cost = nb::cast<const TransferCost&>(how.cost);
  options.source_dtype = dtype_from_name(dtypes.source);
  options.dtype = dtype_from_name(dtypes.target);
  options.op = matrix_op_from_name(op);
  return options;
}

RedistributionBatch plan_batch(Comm& comm, const std::vector<const Layout*>& sources,
                               const std::vector<const Layout*>& targets,
                               const std::pair<std::string, std::string>& dtypes, const std::string& op,
                               const std::string& relabel, bool relabel_jointly, nb::handle cost,
                               const std::string& failure) {
  std::optional<Error> wrong;
  std::vector<LayoutPair> pairs;
  RedistributionOptions options;
  try {
    if (!failure.empty()) throw Error(ErrorCode::invalid_argument, failure);
    options = options_of({dtypes.first, dtypes.second}, op, {relabel, cost, relabel_jointly});
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

/// Collective. A caller whose arguments are invalid passes `failure`, so that the call fails on all ranks.
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

/// This rank's memory for one side of a pair.
struct Side {
  std::vector<ArrayView> arrays;
  /// One entry per local array. Empty if the memory is contiguous, as the layout says.
  std::vector<LocalMemory::Tile> strides;
  std::vector<std::byte*> first;

  bool is_dense() const { return strides.empty(); }
};

[[noreturn]] void refuse(const char* argument, const std::string& has, const std::string& expected) {
  throw Error(ErrorCode::invalid_argument, std::string(argument) + " " + has + "; expected " + expected);
}

/// As Python prints a tuple.
std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t length : shape) text += (text.empty() ? "" : ", ") + std::to_string(length);
  return "(" + text + (shape.size() == 1 ? ",)" : ")");
}

void add_part(Side& side, const ArrayView& array, const std::vector<std::int64_t>& shape, std::uint64_t item_bytes,
              const char* argument) {
  if (array.shape() != shape && !(array.count() == 0 && std::ranges::find(shape, 0) != shape.end()))
    refuse(argument, "has an array of the shape " + text_of(array.shape()),
           text_of(shape) + ", what the layout gives to this rank, see Layout.part_shapes()");
  LocalMemory::Tile& part = side.strides.emplace_back();
  part.strides_elems.resize(shape.size());
  side.first.push_back(array.data());
  if (array.count() == 0) return;
  const auto item = static_cast<std::int64_t>(item_bytes);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (array.strides_bytes()[d] % item != 0 && shape[d] > 1)
      refuse(argument,
             "has elements " + std::to_string(array.strides_bytes()[d]) + " bytes apart along dimension " +
                 std::to_string(d),
             "a multiple of their " + std::to_string(item) + " bytes");
    part.strides_elems[d] = shape[d] > 1 ? array.strides_bytes()[d] / item : 0;
  }
}

/// Describes contiguous memory by its arrays too, because the other side of the pair is not contiguous.
void split(Side& side, const Expected& what, int rank) {
  if (!side.is_dense()) return;
  std::byte* at = side.arrays[0].data();
  const bool row_major = what.layout.storage() == Order::row_major;
  for (const std::vector<std::int64_t>& shape : what.layout.local_part_shapes(rank)) {
    LocalMemory::Tile& part = side.strides.emplace_back();
    part.strides_elems.resize(shape.size());
    side.first.push_back(at);
    std::int64_t stride = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const std::size_t d = row_major ? shape.size() - 1 - i : i;
      part.strides_elems[d] = stride;
      stride *= i == 0 && what.leading_elems != 0 ? what.leading_elems : shape[d];
    }
    at += stride * static_cast<std::int64_t>(size_bytes(what.dtype));
  }
}

template <class Parts>
Parts parts_of(const Side& side) {
  Parts parts;
  for (std::size_t i = 0; i < side.strides.size(); ++i) parts.push_back({side.first[i], side.strides[i].strides_elems});
  return parts;
}

ArrayView array_of(nb::handle given, Access access, const char* argument, DType dtype) {
  ArrayView array = strided_view(given, access, argument);
  if (array.dtype() != dtype)
    refuse(argument, "holds " + std::string(name(array.dtype())), std::string(name(dtype)) + ", as planned");
  return array;
}

/// A list has one array per local array of the rank. An array with strides is the rank's only one.
Side local_side(nb::handle given, Access access, const char* argument, const Expected& what, int rank) {
  const auto& [layout, leading_elems, dtype, expected_bytes] = what;
  Side side;
  if (nb::isinstance<nb::list>(given) || nb::isinstance<nb::tuple>(given)) {
    const std::vector<std::vector<std::int64_t>> shapes = layout.local_part_shapes(rank);
    const std::size_t count = nb::len(given);
    if (count != shapes.size())
      refuse(argument, "consists of " + std::to_string(count) + " arrays",
             std::to_string(shapes.size()) + ", what the layout gives to rank " + std::to_string(rank));
    for (const nb::handle each : given) side.arrays.push_back(array_of(each, access, argument, dtype));
    for (std::size_t i = 0; i < count; ++i) add_part(side, side.arrays[i], shapes[i], size_bytes(dtype), argument);
    if (count == 0) side.arrays.emplace_back();
    return side;
  }
  const ArrayView& part = side.arrays.emplace_back(array_of(given, access, argument, dtype));
  const bool row_major = layout.storage() == Order::row_major;
  const bool in_order = row_major ? part.c_contiguous() : part.fortran_contiguous();
  std::vector<std::int64_t> shape = layout.local_shape(rank);
  const std::uint64_t expected = expected_bytes / size_bytes(dtype);
  if (!in_order || (leading_elems != 0 && part.shape() == shape && part.count() != expected)) {
    const std::vector<std::vector<std::int64_t>> shapes = layout.local_part_shapes(rank);
    if (shapes.size() == 1 && part.shape() == shapes[0]) {
      add_part(side, part, shape, size_bytes(dtype), argument);
      return side;
    }
    if (!in_order && part.count() == expected && part.shape().size() > 1)
      refuse(argument, "has the shape " + text_of(part.shape()),
             "an array of Layout.local_shape, " + text_of(shape) + ", or a list of arrays of Layout.part_shapes");
    if (!part.is_contiguous())
      refuse(argument, "is not contiguous", "that, or an array of Layout.local_shape with any strides");
  }
  if (part.count() != expected)
    refuse(argument, "has " + std::to_string(part.count()) + " elements",
           std::to_string(expected) + ", what the layout gives to rank " + std::to_string(rank));
  if (part.shape().size() < 2 || expected == 0) return side;
  if (leading_elems != 0) shape[row_major ? 1 : 0] = leading_elems;
  if (part.shape() != shape)
    refuse(argument, "has the shape " + text_of(part.shape()),
           text_of(shape) + ", what the layout gives to rank " + std::to_string(rank) +
               (leading_elems != 0 ? ", with its leading dimension" : ""));
  return side;
}

Workspace workspace_of(nb::handle given, std::vector<ArrayView>& arrays) {
  if (given.is_none()) return std::nullopt;
  return arrays.emplace_back(view(given, Access::write, "workspace")).writable_bytes();
}

std::complex<double> factor(nb::handle given, const char* argument) {
  // complex() takes texts, too.
  const nb::object value =
      PyUnicode_Check(given.ptr())
          ? nb::object()
          : nb::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PyComplex_Type), given.ptr(), nullptr));
  if (!value.is_valid()) {
    PyErr_Clear();
    throw Error(ErrorCode::invalid_argument,
                std::string(argument) + " is not a number; expected a real or complex number");
  }
  return {PyComplex_RealAsDouble(value.ptr()), PyComplex_ImagAsDouble(value.ptr())};
}

struct Sides {
  std::vector<Side> inputs;
  std::vector<Side> outputs;

  bool are_dense() const {
    const auto is_dense = [](const Side& side) { return side.is_dense(); };
    return std::ranges::all_of(inputs, is_dense) && std::ranges::all_of(outputs, is_dense);
  }
  /// Everything that must stay alive during the operation.
  std::vector<ArrayView> take_arrays() && {
    std::vector<ArrayView> all;
    all.reserve(inputs.size() + outputs.size() + 1);
    for (auto* sides : {&inputs, &outputs})
      for (Side& side : *sides)
        all.insert(all.end(), std::make_move_iterator(side.arrays.begin()), std::make_move_iterator(side.arrays.end()));
    return all;
  }
};

PendingRequest start_sides(const RedistributionBatch& batch, int rank, const nb::list& sources, const nb::list& targets,
                           nb::handle alpha, nb::handle beta, nb::handle given_workspace) {
  Sides sides;
  std::vector<ArrayView> more;
  std::complex<double> factors[2];
  Workspace workspace;
  const RedistributionOptions& options = batch.options();
  std::vector<ConstStridedParts> input_parts;
  std::vector<StridedParts> output_parts;
  try {
    const std::size_t count = std::min({batch.size(), nb::len(sources), nb::len(targets)});
    sides.inputs.reserve(count);
    sides.outputs.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const LayoutPair& pair = batch.pairs()[i];
      const Expected of_source{pair.source, options.source_leading_elems, options.input_dtype(),
                               batch.local_input_bytes(i)};
      const Expected of_target{pair.target, options.target_leading_elems, options.dtype, batch.local_output_bytes(i)};
      sides.inputs.push_back(local_side(sources[i], Access::read, "source", of_source, rank));
      sides.outputs.push_back(local_side(targets[i], Access::write, "target", of_target, rank));
    }
    factors[0] = factor(alpha, "alpha");
    factors[1] = factor(beta, "beta");
    workspace = workspace_of(given_workspace, more);
    if (!sides.are_dense())
      for (std::size_t i = 0; i < count; ++i) {
        const LayoutPair& pair = batch.pairs()[i];
        split(sides.inputs[i], {pair.source, options.source_leading_elems, options.input_dtype(), 0}, rank);
        split(sides.outputs[i], {pair.target, options.target_leading_elems, options.dtype, 0}, rank);
        input_parts.push_back(parts_of<ConstStridedParts>(sides.inputs[i]));
        output_parts.push_back(parts_of<StridedParts>(sides.outputs[i]));
      }
  } catch (const Error& error) {
    const nb::gil_scoped_release released;
    batch.fail(error.message());
    throw;
  }
  std::vector<ConstBytes> inputs;
  std::vector<Bytes> outputs;
  if (input_parts.empty()) {
    for (const Side& side : sides.inputs) inputs.push_back(side.arrays[0].bytes());
    for (const Side& side : sides.outputs) outputs.push_back(side.arrays[0].writable_bytes());
  }
  Request request;
  {
    const nb::gil_scoped_release released;
    request = input_parts.empty() ? batch.start(inputs, outputs, factors[0], factors[1], workspace)
                                  : batch.start_parts(input_parts, output_parts, factors[0], factors[1], workspace);
  }
  std::vector<ArrayView> arrays = std::move(sides).take_arrays();
  arrays.insert(arrays.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return {std::move(request), std::move(arrays)};
}

/// The arguments of one run of a redistribution.
class Arguments {
 public:
  Arguments(nb::handle source, nb::handle target, nb::handle alpha, nb::handle beta, nb::handle workspace)
      : source_(source), target_(target), alpha_(alpha), beta_(beta), given_workspace_(workspace) {}

  /// Throws Error(invalid_argument).
  void read(const Expected& of_source, const Expected& of_target, int rank) {
    input_ = local_side(source_, Access::read, "source", of_source, rank);
    output_ = local_side(target_, Access::write, "target", of_target, rank);
    factors_[0] = factor(alpha_, "alpha");
    factors_[1] = factor(beta_, "beta");
    workspace_ = workspace_of(given_workspace_, more_);
    is_dense_ = input_.is_dense() && output_.is_dense() && !input_.arrays.empty() && !output_.arrays.empty();
    if (is_dense_) return;
    split(input_, of_source, rank);
    split(output_, of_target, rank);
    input_parts_ = parts_of<ConstStridedParts>(input_);
    output_parts_ = parts_of<StridedParts>(output_);
  }

  /// Calls `start(input, output, alpha, beta, workspace)` without the GIL, with contiguous memory or with strided
  /// arrays.
  template <class Start>
  PendingRequest start(const Start& start) && {
    Request request;
    {
      const nb::gil_scoped_release released;
      request = is_dense_ ? start(input_.arrays[0].bytes(), output_.arrays[0].writable_bytes(), factors_[0],
                                  factors_[1], workspace_)
                          : start(input_parts_, output_parts_, factors_[0], factors_[1], workspace_);
    }
    for (Side* side : {&input_, &output_})
      more_.insert(more_.end(), std::make_move_iterator(side->arrays.begin()),
                   std::make_move_iterator(side->arrays.end()));
    return {std::move(request), std::move(more_)};
  }

 private:
  nb::handle source_, target_, alpha_, beta_, given_workspace_;
  Side input_, output_;
  std::vector<ArrayView> more_;
  Workspace workspace_;
  std::complex<double> factors_[2];
  ConstStridedParts input_parts_;
  StridedParts output_parts_;
  bool is_dense_ = true;
};

PendingRequest start_redistribution(const Redistribution& redistribution, int rank, nb::handle source,
                                    nb::handle target, nb::handle alpha, nb::handle beta, nb::handle given_workspace) {
  Arguments arguments(source, target, alpha, beta, given_workspace);
  const RedistributionOptions& options = redistribution.options();
  const Expected of_source{redistribution.source(), options.source_leading_elems, options.input_dtype(),
                           redistribution.local_input_bytes()};
  const Expected of_target{redistribution.target(), options.target_leading_elems, options.dtype,
                           redistribution.local_output_bytes()};
  try {
    arguments.read(of_source, of_target, rank);
  } catch (const Error& error) {
    const nb::gil_scoped_release released;
    redistribution.fail(error.message());
    throw;
  }
  return std::move(arguments).start([&](const auto& input, const auto& output, auto... rest) {
    if constexpr (std::is_same_v<std::decay_t<decltype(input)>, ConstStridedParts>)
      return redistribution.start_parts(input, output, rest...);
    else
      return redistribution.start(input, output, rest...);
  });
}

/// Starts a call whose plan the communicator caches. A caller whose arguments are invalid passes `failure`.
PendingRequest start_once(Comm& comm, nb::handle source_layout, nb::handle target_layout,
                          const std::pair<std::string, std::string>& dtypes, const std::string& op, nb::handle source,
                          nb::handle target, nb::handle alpha, nb::handle beta, nb::handle given_workspace,
                          const std::string& failure) {
  const int rank = comm.rank();
  Arguments arguments(source, target, alpha, beta, given_workspace);
  RedistributionOptions options;
  const Layout* from = nullptr;
  const Layout* to = nullptr;
  try {
    if (!failure.empty()) throw Error(ErrorCode::invalid_argument, failure);
    from = &nb::cast<const Layout&>(source_layout);
    to = &nb::cast<const Layout&>(target_layout);
    options.source_dtype = dtype_from_name(dtypes.first);
    options.dtype = dtype_from_name(dtypes.second);
    options.op = matrix_op_from_name(op);
    const auto bytes = [&](const Layout& layout, DType dtype) {
      return static_cast<std::uint64_t>(layout.local_size_elems(rank)) * size_bytes(dtype);
    };
    arguments.read({*from, 0, *options.source_dtype, bytes(*from, *options.source_dtype)},
                   {*to, 0, options.dtype, bytes(*to, options.dtype)}, rank);
  } catch (const Error& error) {
    const nb::gil_scoped_release released;
    comm.fail_next(error.message());
    throw;
  }
  return std::move(arguments).start([&](const auto& input, const auto& output, auto... rest) {
    return start_redistribution(comm, {*from, *to, options, rest...}, input, output);
  });
}

nb::tuple facts_of(const Relabeling& found) {
  return nb::make_tuple(found.permutation, found.bytes_before, found.bytes_after, found.cost_before, found.cost_after,
                        found.skipped);
}

RelabeledSide side_from_name(const std::string& name) {
  if (name == "target") return RelabeledSide::target;
  if (name == "source") return RelabeledSide::source;
  throw Error(ErrorCode::invalid_argument, "side is '" + name + "'; expected 'source' or 'target'");
}

/// Source, target, length of an element, op, relabeled side.
using TransferFacts = std::tuple<const Layout*, const Layout*, std::size_t, std::string, std::string>;

nb::tuple relabel_of(const std::vector<TransferFacts>& facts, std::int32_t ranks, const std::string& policy,
                     nb::handle cost) {
  std::vector<RelabelTransfer> transfers;
  for (const auto& [source, target, element_bytes, op, side] : facts)
    transfers.push_back({*source, *target, side_from_name(side), element_bytes, matrix_op_from_name(op)});
  RelabelOptions options{.ranks = ranks, .policy = policy_from_name(policy)};
  if (!cost.is_none()) options.cost = nb::cast<const TransferCost&>(cost);
  Relabeling result;
  {
    const nb::gil_scoped_release released;
    result = relabel(transfers, options);
  }
  return facts_of(result);
}

using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// A cost that calls `function` with the source ranks and bytes of the packages. It returns one number per rank.
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
                                                     " costs; expected one for each of " + std::to_string(cost.size()) +
                                                     " ranks");
      for (std::size_t r = 0; r < cost.size(); ++r) cost[r] += numbers.data()[r];
    } catch (const Error&) {
      throw;
    } catch (const nb::python_error& error) {
      throw Error(ErrorCode::invalid_argument,
                  std::string("relabel: the cost function failed: ") + nb::str(error.value()).c_str());
    } catch (const nb::cast_error&) {
      throw Error(ErrorCode::invalid_argument,
                  "relabel: the cost function did not return an array of float64; expected one cost per rank");
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
      .def_prop_ro(
          "relabeling", [](const Redistribution& planned) { return python::facts_of(planned.relabeling()); },
          nb::for_getter(nb::sig("def relabeling(self) -> tuple[list[int], int, int, float, float, str]")))
      .def("text", [](const Redistribution& planned) { return to_text(planned.plan()); })
      .def("json", [](const Redistribution& planned) { return to_json(planned.plan()); })
      .def("fail", &Redistribution::fail)
      .def_prop_ro("workspace_bytes", &Redistribution::workspace_bytes)
      .def("start", &python::start_redistribution, nb::arg("rank"), nb::arg("source").none(), nb::arg("target").none(),
           nb::arg("alpha").none(), nb::arg("beta").none(), nb::arg("workspace").none(),
           nb::sig("def start(self, rank: int, source: object, target: object, alpha: complex, beta: complex, "
                   "workspace: object) -> Request"))
      .def(
          "run",
          [](const Redistribution& planned, int rank, nb::handle source, nb::handle target, nb::handle alpha,
             nb::handle beta, nb::handle workspace) {
            python::start_redistribution(planned, rank, source, target, alpha, beta, workspace).wait();
          },
          nb::arg("rank"), nb::arg("source").none(), nb::arg("target").none(), nb::arg("alpha").none(),
          nb::arg("beta").none(), nb::arg("workspace").none(),
          nb::sig("def run(self, rank: int, source: object, target: object, alpha: complex, beta: complex, "
                  "workspace: object) -> None"));
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
      .def_prop_ro(
          "relabelings",
          [](const RedistributionBatch& batch) {
            nb::list relabelings;
            for (const Relabeling& each : batch.relabelings()) relabelings.append(python::facts_of(each));
            return relabelings;
          },
          nb::for_getter(nb::sig("def relabelings(self) -> list[tuple[list[int], int, int, float, float, str]]")))
      .def("text", [](const RedistributionBatch& batch) { return to_text(batch.plan()); })
      .def("json", [](const RedistributionBatch& batch) { return to_json(batch.plan()); })
      .def("fail", &RedistributionBatch::fail)
      .def_prop_ro("workspace_bytes", &RedistributionBatch::workspace_bytes)
      .def("start", &python::start_sides, nb::arg("rank"), nb::arg("sources"), nb::arg("targets"),
           nb::arg("alpha").none(), nb::arg("beta").none(), nb::arg("workspace").none(),
           nb::sig("def start(self, rank: int, sources: list[object], targets: list[object], alpha: complex, "
                   "beta: complex, workspace: object) -> Request"))
      .def(
          "run",
          [](const RedistributionBatch& batch, int rank, const nb::list& sources, const nb::list& targets,
             nb::handle alpha, nb::handle beta, nb::handle workspace) {
            python::start_sides(batch, rank, sources, targets, alpha, beta, workspace).wait();
          },
          nb::arg("rank"), nb::arg("sources"), nb::arg("targets"), nb::arg("alpha").none(), nb::arg("beta").none(),
          nb::arg("workspace").none(),
          nb::sig("def run(self, rank: int, sources: list[object], targets: list[object], alpha: complex, "
                  "beta: complex, workspace: object) -> None"));
  module.def("start_redistribution", &python::start_once, nb::arg("comm"), nb::arg("source_layout").none(),
             nb::arg("target_layout").none(), nb::arg("dtypes"), nb::arg("op"), nb::arg("source").none(),
             nb::arg("target").none(), nb::arg("alpha").none(), nb::arg("beta").none(), nb::arg("workspace").none(),
             nb::arg("failure"),
             nb::sig("def start_redistribution(comm: Comm, source_layout: Layout | None, target_layout: Layout | None, "
                     "dtypes: tuple[str, str], op: str, source: object, target: object, alpha: complex, beta: complex, "
                     "workspace: object, failure: str) -> Request"));
  module.def("plan_batch", &python::plan_batch, nb::arg("comm"), nb::arg("sources"), nb::arg("targets"),
             nb::arg("dtypes"), nb::arg("op"), nb::arg("relabel"), nb::arg("relabel_jointly"), nb::arg("cost").none(),
             nb::arg("failure"),
             nb::sig("def plan_batch(comm: Comm, sources: collections.abc.Sequence[Layout], "
                     "targets: collections.abc.Sequence[Layout], dtypes: tuple[str, str], op: str, relabel: str, "
                     "relabel_jointly: bool, cost: TransferCost | None, failure: str) -> RedistributionBatch"));
  // Invalid arguments must raise on all ranks, so None passes through to the functions that check it.
  module.def("plan_redistribute", &python::plan, nb::arg("comm"), nb::arg("source").none(), nb::arg("target").none(),
             nb::arg("dtypes"), nb::arg("op"), nb::arg("relabel"), nb::arg("cost").none(), nb::arg("part"),
             nb::arg("leading"), nb::arg("failure"),
             nb::sig("def plan_redistribute(comm: Comm, source: Layout | None, target: Layout | None, "
                     "dtypes: tuple[str, str], op: str, relabel: str, cost: TransferCost | None, "
                     "part: collections.abc.Sequence[collections.abc.Sequence[int]], "
                     "leading: collections.abc.Sequence[int], failure: str) -> Redistribution"));
  nb::class_<TransferCost>(module, "TransferCost")
      .def(nb::init<>())
      .def_static("pairs", &TransferCost::pairs)
      .def_static("nodes", &TransferCost::nodes)
      .def_static("parts", &python::cost_of_parts,
                  nb::sig("def parts(function: collections.abc.Callable[[list[int], list[int], int], "
                          "numpy.typing.NDArray[numpy.float64]], /) -> TransferCost"))
      .def("with_transformation", &TransferCost::with_transformation);
  module.def(
      "relabel", &python::relabel_of, nb::arg("transfers"), nb::arg("ranks"), nb::arg("policy"), nb::arg("cost").none(),
      nb::sig("def relabel(transfers: collections.abc.Sequence[tuple[Layout, Layout, int, str, str]], ranks: int, "
              "policy: str, cost: TransferCost | None) -> tuple[list[int], int, int, float, float, str]"));
  module.def("transfer_volumes", &python::volumes_of);
  module.def("assign_max_weight", &python::assign);
  module.def("assign_max_weight_sparse", &python::assign_sparse);
}
