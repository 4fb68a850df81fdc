#include "scalapack/call.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.hpp"
#include "base/overlap.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "scalapack/host.hpp"
#include "scalapack/plans.hpp"
#include "scalapack/report.hpp"

namespace penstock::scalapack {
namespace {

/// What one process tells the others about a call without a cached plan.
struct RankInfo {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Operand source;
  Operand target;
};

struct Numbers {
  std::uint64_t key[2] = {};
  std::uint64_t complaints = 0;
};

/// The sum of the keys of all ranks identifies the call, so each rank's key depends on its rank.
Numbers numbers_of(const RankInfo& info, const Routine& routine, int rank) {
  std::uint64_t words[sizeof(RankInfo) / sizeof(std::uint64_t)];
  static_assert(std::is_trivially_copyable_v<RankInfo> && sizeof(words) == sizeof(RankInfo));
  std::memcpy(words, &info, sizeof(RankInfo));
  Numbers numbers;
  for (std::uint64_t i = 0; i < 2; ++i) {
    std::uint64_t& key = numbers.key[i];
    key = base::mix(base::mix(base::kSeed * (i + 1), static_cast<std::uint64_t>(rank)),
                    static_cast<std::uint64_t>(routine.dtype) << 8 | static_cast<std::uint64_t>(routine.op));
    for (const std::uint64_t word : words) key = base::mix(key, word);
  }
  return numbers;
}

/// The work of one process for a call.
class Caller {
 public:
  Caller(const Routine& routine, const Call& call)
      : routine_(routine),
        call_(call),
        source_rows_(routine.op == MatrixOp::none ? call.rows : call.columns),
        source_columns_(routine.op == MatrixOp::none ? call.columns : call.rows) {
    info_.source = read_operand(call.source_descriptor, call.source_row, call.source_column, routine.descriptors);
    info_.target = read_operand(call.target_descriptor, call.target_row, call.target_column, routine.descriptors);
    if (info_.source.present == 0 && info_.target.present == 0) return;  // this process has neither matrix
    info_.rows = call.rows;
    info_.columns = call.columns;
  }

  std::optional<Complaint> complaint() const {
    if (call_.trapezoid)
      if (const auto found = call_.trapezoid->check()) return found;
    if (call_.rows < 0) return Complaint{routine_.rows, "M is " + std::to_string(call_.rows) + "; expected at least 0"};
    if (call_.columns < 0)
      return Complaint{routine_.rows + 1, "N is " + std::to_string(call_.columns) + "; expected at least 0"};
    if (const auto found = check(info_.source, call_.source_descriptor, source_rows_, source_columns_, routine_.source,
                                 routine_.descriptors))
      return found;
    return check(info_.target, call_.target_descriptor, call_.rows, call_.columns, routine_.target,
                 routine_.descriptors);
  }

  bool fits_layouts() const { return fits_layout(info_.source) && fits_layout(info_.target); }

  /// Whether alpha is 0: the source is not read then, and may contain anything.
  bool only_scales() const { return call_.alpha == 0.0; }

  template <typename T>
  void scale() const {
    const LocalPart part = local_part(info_.target, call_.rows, call_.columns);
    if (part.empty()) return;
    T* const elements = static_cast<T*>(call_.output);
    for (std::int64_t column = 0; column < part.columns; ++column) {
      T* const first = elements + part.begin_elems() + column * part.leading_elems;
      for (std::int64_t row = 0; row < part.rows; ++row)
        first[row] = call_.beta == 0.0 ? T{} : first[row] * scalar<T>(call_.beta);
    }
  }

  /// Collective. False if some process has found an error.
  bool agree(Comm& comm, bool complains) {
    Numbers mine = numbers_of(info_, routine_, comm.rank());
    mine.complaints = complains ? 1 : 0;
    Numbers sum;
    comm.run(
        {.kind = CollectiveKind::allreduce, .count = sizeof(Numbers) / sizeof(std::uint64_t), .dtype = DType::uint64},
        std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(&sum, 1)));
    key_ = {sum.key[0], sum.key[1]};
    return sum.complaints == 0;
  }

  /// The cached agreement on an equal call, if this process can tell that the call is equal on all processes: both
  /// matrices are on the grid of the call, whose processes the communicator has in row-major order. Leading dimensions
  /// may differ.
  Agreed* known(const Comm& comm) {
    if (!sees_all(comm)) return nullptr;
    RankInfo shared = info_;
    for (Operand* operand : {&shared.source, &shared.target})
      operand->leading_elems = operand->grid_row = operand->grid_column = 0;
    const Numbers numbers = numbers_of(shared, routine_, -1);
    arguments_ = {numbers.key[0], numbers.key[1]};
    return plans_of(comm).by_arguments.find(*arguments_);
  }

  void move_as(Agreed& agreed, Comm& comm) {
    const std::int64_t source_leading = leading_elems_of(info_.source);
    const std::int64_t target_leading = leading_elems_of(info_.target);
    RedistributionOptions& options = agreed.options;
    if (options.source_leading_elems != source_leading || options.target_leading_elems != target_leading) {
      options.source_leading_elems = source_leading;
      options.target_leading_elems = target_leading;
      try {
        agreed.plan =
            std::make_shared<const Plan>(plan_redistribution(agreed.source, agreed.target, options, comm.team()));
      } catch (const std::exception& error) {
        comm.fail_next(error.what());
        throw;
      }
    }
    move(agreed.plan, *arguments_, comm);
  }

  void move(Comm& comm, Counts& counts) {
    Plans& plans = plans_of(comm);
    if (const auto* const found = plans.by_sum.find(key_)) return move(*found, key_, comm);
    ++counts.plans;
    Agreed agreed = plan_together(comm);
    const std::shared_ptr<const Plan> plan = plans.by_sum.add(key_, agreed.plan);
    if (arguments_) plans.by_arguments.add(*arguments_, std::move(agreed));
    move(plan, key_, comm);
  }

 private:
  bool sees_all(const Comm& comm) const {
    for (const auto& [operand, descriptor] :
         {std::pair(&info_.source, call_.source_descriptor), std::pair(&info_.target, call_.target_descriptor)})
      if (operand->present == 0 || descriptor[1] != call_.context ||
          operand->grid_rows * operand->grid_columns != comm.size() ||
          operand->grid_row * operand->grid_columns + operand->grid_column != comm.rank())
        return false;
    return true;
  }

  void move(const std::shared_ptr<const Plan>& plan, const Key& key, Comm& comm) {
    ConstBytes input{static_cast<const std::byte*>(call_.input), plan->input_bytes};
    Bytes output{static_cast<std::byte*>(call_.output), plan->output_bytes};
    std::unique_ptr<std::byte[]> aside;
    if (call_.trapezoid) {
      aside = std::make_unique_for_overwrite<std::byte[]>(output.size());
      output = {aside.get(), output.size()};
    } else if (overlaps()) {
      aside = copy_of_source(input.size());
      input = {aside.get(), input.size()};
    }
    const Arithmetic arithmetic{.dtype = routine_.dtype,
                                .conjugate = routine_.op == MatrixOp::conjugate_transpose,
                                .alpha = call_.alpha,
                                .beta = call_.beta};
    std::uint64_t signature = base::mix(key[0], key[1]);
    for (const double part : {call_.alpha.real(), call_.alpha.imag(), call_.beta.real(), call_.beta.imag()})
      signature = base::mix(signature, std::bit_cast<std::uint64_t>(part));
    if (const auto& part = call_.trapezoid)
      signature = base::mix(signature, static_cast<std::uint64_t>(part->is_upper()) << 1 | part->has_diagonal());
    comm.start(plan, input, output, arithmetic, signature).wait();
    if (call_.trapezoid) copy_trapezoid(output);
  }

  /// From memory that is like the target's.
  void copy_trapezoid(ConstBytes moved) const {
    const std::uint64_t size = size_bytes(routine_.dtype);
    for (std::int64_t column = 0; column < call_.columns; ++column) {
      const auto [begin, end] = call_.trapezoid->in_column(column, call_.rows, call_.columns);
      const LocalPart part = local_part_of_column(info_.target, column, begin, end);
      if (part.empty()) continue;
      const std::uint64_t at = static_cast<std::uint64_t>(part.begin_elems()) * size;
      std::memcpy(static_cast<std::byte*>(call_.output) + at, moved.data() + at,
                  static_cast<std::uint64_t>(part.rows) * size);
    }
  }

  template <typename T>
  static T scalar(std::complex<double> value) {
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(value.real());
    else
      return T(static_cast<typename T::value_type>(value.real()), static_cast<typename T::value_type>(value.imag()));
  }

  Agreed plan_together(Comm& comm) const {
    std::vector<RankInfo> infos(static_cast<std::size_t>(comm.size()));
    comm.allgather(std::as_bytes(std::span(&info_, 1)), std::as_writable_bytes(std::span(infos)));
    const auto first = std::find_if(infos.begin(), infos.end(), [](const RankInfo& info) { return info.rows > 0; });
    std::vector<Operand> sources;
    std::vector<Operand> targets;
    for (const RankInfo& info : infos) {
      sources.push_back(info.source);
      targets.push_back(info.target);
      const bool knows = info.source.present != 0 || info.target.present != 0;
      if (knows && (info.rows != first->rows || info.columns != first->columns))
        throw Error(ErrorCode::mismatch, "process " + std::to_string(&info - infos.data()) + " moves " +
                                             std::to_string(info.rows) + " x " + std::to_string(info.columns) +
                                             " elements, process " + std::to_string(first - infos.begin()) + " " +
                                             std::to_string(first->rows) + " x " + std::to_string(first->columns) +
                                             "; give the same M and N everywhere");
    }
    Agreed agreed{layout_of(sources, routine_.source), layout_of(targets, routine_.target), {}, nullptr};
    const Operand& of_source = *std::ranges::find(sources, 1, &Operand::present);
    const Operand& of_target = *std::ranges::find(targets, 1, &Operand::present);
    comm.agree([&] {
      RedistributionOptions& options = agreed.options;
      options.dtype = routine_.dtype;
      options.op = routine_.op;
      options.source_begin = {of_source.row_begin, of_source.column_begin};
      options.target_begin = {of_target.row_begin, of_target.column_begin};
      options.shape = {first->rows, first->columns};
      if (routine_.op != MatrixOp::none) std::swap(options.shape[0], options.shape[1]);
      options.source_leading_elems = leading_elems_of(info_.source);
      options.target_leading_elems = leading_elems_of(info_.target);
      agreed.plan =
          std::make_shared<const Plan>(plan_redistribution(agreed.source, agreed.target, options, comm.team()));
    });
    return agreed;
  }

  /// Whether source and target overlap in the memory of this process, from the first to the last element that moves: a
  /// program may move a part of a matrix to another part of it.
  bool overlaps() const {
    const LocalPart from = local_part(info_.source, source_rows_, source_columns_);
    const LocalPart to = local_part(info_.target, call_.rows, call_.columns);
    if (from.empty() || to.empty()) return false;
    const auto size = static_cast<std::int64_t>(size_bytes(routine_.dtype));
    const auto* const source = static_cast<const std::byte*>(call_.input);
    const auto* const target = static_cast<const std::byte*>(call_.output);
    return base::overlap(source + from.begin_elems() * size, source + from.end_elems() * size,
                         target + to.begin_elems() * size, target + to.end_elems() * size);
  }

  std::unique_ptr<std::byte[]> copy_of_source(std::uint64_t memory_bytes) const {
    const LocalPart from = local_part(info_.source, source_rows_, source_columns_);
    const std::uint64_t size = size_bytes(routine_.dtype);
    auto copy = std::make_unique_for_overwrite<std::byte[]>(memory_bytes);
    for (std::int64_t column = 0; column < from.columns; ++column) {
      const std::uint64_t at = static_cast<std::uint64_t>(from.begin_elems() + column * from.leading_elems) * size;
      std::memcpy(copy.get() + at, static_cast<const std::byte*>(call_.input) + at,
                  static_cast<std::uint64_t>(from.rows) * size);
    }
    return copy;
  }

  const Routine& routine_;
  const Call& call_;
  std::int64_t source_rows_;
  std::int64_t source_columns_;
  RankInfo info_;
  Key key_{};
  std::optional<Key> arguments_;  ///< if this process knows all arguments
};

void scale(const Routine& routine, const Caller& caller) {
  switch (routine.dtype) {
    case DType::float32: return caller.scale<float>();
    case DType::float64: return caller.scale<double>();
    case DType::complex64: return caller.scale<std::complex<float>>();
    case DType::complex128: return caller.scale<std::complex<double>>();
    default: throw Error(ErrorCode::unsupported, "no factors for this type");
  }
}

}  // namespace

bool Trapezoid::is_upper() const { return uplo == 'U' || uplo == 'u'; }
bool Trapezoid::has_diagonal() const { return diag == 'N' || diag == 'n'; }

Trapezoid::Range Trapezoid::in_column(std::int64_t column, std::int64_t rows, std::int64_t columns) const {
  if (is_upper()) {
    const std::int64_t end = std::max<std::int64_t>(rows - columns, 0) + column + (has_diagonal() ? 1 : 0);
    return {0, std::min(end, rows)};
  }
  const std::int64_t begin = column - std::max<std::int64_t>(columns - rows, 0) + (has_diagonal() ? 0 : 1);
  return {std::clamp<std::int64_t>(begin, 0, rows), rows};
}

std::optional<Complaint> Trapezoid::check() const {
  const auto one_of = [](char given, const char* name, int parameter, const char* letters,
                         const char* expected) -> std::optional<Complaint> {
    if (given != '\0' && std::strchr(letters, given) != nullptr) return std::nullopt;
    return Complaint{parameter, std::string(name) + " is '" + given + "'; expected " + expected};
  };
  if (const auto found = one_of(uplo, "UPLO", 1, "UuLl", "'U' or 'L'")) return found;
  return one_of(diag, "DIAG", 2, "UuNn", "'U' or 'N'");
}

Plans& plans_of(const Comm& comm) {
  static std::unordered_map<const Comm*, Plans> plans;
  return plans[&comm];
}

bool run(const Routine& routine, const Call& call) noexcept {
  // As in ScaLAPACK, a process without work does not wait for the others.
  if (call.rows == 0 || call.columns == 0 || (call.alpha == 0.0 && call.beta == 1.0)) return true;
  try {
    Counts& counts = counts_of(routine.name);
    ++counts.calls;
    const Grid grid = grid_of(call.context);
    if (!grid.has_me()) {
      ++counts.failed;
      complain(call.context, routine.name, call.context_parameter,
               "the context is " + std::to_string(call.context) + "; expected one that this process is in");
      return true;
    }
    Caller caller(routine, call);
    const std::optional<Complaint> complaint = caller.complaint();
    if (complaint) complain(call.context, routine.name, complaint->parameter, complaint->text);
    if (!complaint && !caller.fits_layouts()) {
      ++counts.passed_on;
      return false;
    }
    if (!complaint && caller.only_scales()) {
      scale(routine, caller);
      return true;
    }
    Comm& comm = comm_of(call.context);
    Plans& plans = plans_of(comm);
    try {
      if (Agreed* const known = caller.known(comm)) {
        if (!complaint) {
          caller.move_as(*known, comm);
          return true;
        }
        comm.fail_next("an argument of this process is wrong; the process has printed which");
        plans.clear();
      } else if (caller.agree(comm, complaint.has_value())) {
        caller.move(comm, counts);
        return true;
      }
      ++counts.failed;
    } catch (const Error& error) {
      plans.clear();
      ++counts.failed;
      // All processes see a contradiction, and the errors of others, so only one of them prints it.
      const bool seen_by_all = error.code() == ErrorCode::mismatch || error.code() == ErrorCode::peer_failed;
      if (!seen_by_all || comm.rank() == 0) warn(call.context, routine.name, error.what());
    }
  } catch (const std::exception& error) {
    warn(call.context, routine.name, error.what());
  }
  return true;
}

}  // namespace penstock::scalapack
