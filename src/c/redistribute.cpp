#include "penstock/redistribute.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "c/handles.hpp"
#include "c/status.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"

using namespace penstock;
using c::guarded;
using c::or_fail;
using c::require;
using c::unwrap;

namespace {

std::vector<std::int64_t> values(const int64_t* first, std::int64_t count, const char* function, const char* name) {
  require(first, function, name);
  return {first, first + count};
}

/// Fails the next run on all ranks, see or_fail().
struct NextRun {
  const Redistribution& of;
  void fail_next(const std::string& message) const noexcept { of.fail(message); }
};

const Redistribution& required(const char* function, const penstock_redistribution* redistribution) {
  require(redistribution, function, "redistribution");
  return unwrap<Redistribution>(redistribution);
}

Request start(const char* function, const Redistribution& redistribution, const void* input, void* output, double alpha,
              double beta, const Workspace& workspace = {}) {
  const Plan& plan = redistribution.plan();
  or_fail(NextRun{redistribution}, [&] {
    if ((input == nullptr && plan.input_bytes != 0) || (output == nullptr && plan.output_bytes != 0))
      throw Error(ErrorCode::invalid_argument,
                  std::string(function) + ": a buffer is NULL on a rank that has a part of the array");
  });
  return redistribution.start({static_cast<const std::byte*>(input), plan.input_bytes},
                              {static_cast<std::byte*>(output), plan.output_bytes}, alpha, beta, workspace);
}

Workspace workspace_of(void* memory, std::uint64_t size_bytes) {
  if (memory == nullptr) return std::nullopt;
  return Bytes{static_cast<std::byte*>(memory), size_bytes};
}

template <class Parts>
Parts parts_of(const penstock_parts& given, std::size_t dimensions) {
  Parts parts;
  for (std::int64_t i = 0; i < given.parts; ++i) {
    const std::int64_t* const strides = given.strides_elems + i * static_cast<std::int64_t>(dimensions);
    parts.push_back({static_cast<std::byte*>(given.data[i]), {strides, strides + dimensions}});
  }
  return parts;
}

}  // namespace

int penstock_layout_block_cyclic(int dimensions, const int64_t* shape, const int64_t* block, const int64_t* grid,
                                 int grid_column_major, int storage_column_major, penstock_layout** layout) {
  return guarded([&] {
    constexpr const char* kFunction = "penstock_layout_block_cyclic";
    require(layout, kFunction, "layout");
    if (dimensions < 1)
      throw Error(ErrorCode::invalid_argument, std::string(kFunction) + ": there are " + std::to_string(dimensions) +
                                                   " dimensions; expected at least 1");
    const auto order = [](int column_major) { return column_major != 0 ? Order::column_major : Order::row_major; };
    *layout = c::wrap<penstock_layout>(Layout::block_cyclic(
        values(shape, dimensions, kFunction, "shape"), values(block, dimensions, kFunction, "block"),
        values(grid, dimensions, kFunction, "grid"), order(grid_column_major), order(storage_column_major)));
  });
}

int penstock_layout_grid(int64_t block_rows, const int64_t* row_splits, int64_t block_columns,
                         const int64_t* column_splits, const int32_t* owners, int32_t ranks, penstock_layout** layout) {
  return guarded([&] {
    constexpr const char* kFunction = "penstock_layout_grid";
    require(layout, kFunction, "layout");
    require(owners, kFunction, "owners");
    if (block_rows < 1 || block_columns < 1)
      throw Error(ErrorCode::invalid_argument, std::string(kFunction) + ": there are " + std::to_string(block_rows) +
                                                   " x " + std::to_string(block_columns) +
                                                   " blocks; expected at least 1 x 1");
    *layout =
        c::wrap<penstock_layout>(Layout::grid({values(row_splits, block_rows + 1, kFunction, "row_splits"),
                                               values(column_splits, block_columns + 1, kFunction, "column_splits")},
                                              {owners, owners + block_rows * block_columns}, ranks));
  });
}

void penstock_layout_free(penstock_layout* layout) { c::destroy<Layout>(layout); }

int penstock_layout_local_size(const penstock_layout* layout, int32_t rank, int64_t* size_elems) {
  return guarded([&] {
    require(layout, "penstock_layout_local_size", "layout");
    require(size_elems, "penstock_layout_local_size", "size_elems");
    *size_elems = unwrap<Layout>(layout).local_size_elems(rank);
  });
}

int penstock_layout_local_parts(const penstock_layout* layout, int32_t rank, int64_t* parts, int64_t* shapes,
                                int64_t capacity) {
  return guarded([&] {
    require(layout, "penstock_layout_local_parts", "layout");
    const std::vector<std::vector<std::int64_t>> all = unwrap<Layout>(layout).local_part_shapes(rank);
    if (shapes != nullptr)
      for (std::size_t i = 0; i < all.size() && static_cast<std::int64_t>(i) < capacity; ++i)
        shapes = std::copy(all[i].begin(), all[i].end(), shapes);
    if (parts != nullptr) *parts = static_cast<int64_t>(all.size());
  });
}

int penstock_redistribution_create(penstock_comm* comm, const penstock_layout* source, const penstock_layout* target,
                                   penstock_dtype dtype, char op, int relabel,
                                   penstock_redistribution** redistribution) {
  return penstock_redistribution_create_converting(comm, source, dtype, target, dtype, op, relabel, redistribution);
}

int penstock_redistribution_create_converting(penstock_comm* comm, const penstock_layout* source,
                                              penstock_dtype source_dtype, const penstock_layout* target,
                                              penstock_dtype target_dtype, char op, int relabel,
                                              penstock_redistribution** redistribution) {
  return guarded([&] {
    constexpr const char* kFunction = "penstock_redistribution_create";
    require(comm, kFunction, "comm");
    RedistributionOptions options{.dtype = static_cast<DType>(target_dtype),
                                  .source_dtype = static_cast<DType>(source_dtype),
                                  .relabel = relabel != 0 ? RelabelPolicy::worthwhile : RelabelPolicy::never};
    // A wrong argument fails on all ranks: the others would wait for this one.
    unwrap<Comm>(comm).agree([&] {
      require(source, kFunction, "source");
      require(target, kFunction, "target");
      require(redistribution, kFunction, "redistribution");
      options.op = matrix_op_from_name(std::string_view(&op, 1));
    });
    *redistribution = c::wrap<penstock_redistribution>(
        Redistribution(unwrap<Comm>(comm), unwrap<Layout>(source), unwrap<Layout>(target), options));
  });
}

void penstock_redistribution_free(penstock_redistribution* redistribution) {
  c::destroy<Redistribution>(redistribution);
}

int penstock_redistribution_info(const penstock_redistribution* redistribution, uint64_t* bytes_before,
                                 uint64_t* bytes_after, int64_t* input_elems, int64_t* output_elems) {
  return guarded([&] {
    require(redistribution, "penstock_redistribution_info", "redistribution");
    const auto& mine = unwrap<Redistribution>(redistribution);
    const std::uint64_t input_item_bytes = size_bytes(mine.options().input_dtype());
    const std::uint64_t output_item_bytes = size_bytes(mine.options().dtype);
    if (bytes_before != nullptr) *bytes_before = mine.relabeling().bytes_before;
    if (bytes_after != nullptr) *bytes_after = mine.relabeling().bytes_after;
    if (input_elems != nullptr) *input_elems = static_cast<int64_t>(mine.plan().input_bytes / input_item_bytes);
    if (output_elems != nullptr) *output_elems = static_cast<int64_t>(mine.plan().output_bytes / output_item_bytes);
  });
}

int penstock_redistribute(const penstock_redistribution* redistribution, const void* input, void* output, double alpha,
                          double beta) {
  return guarded([&] {
    constexpr const char* kFunction = "penstock_redistribute";
    start(kFunction, required(kFunction, redistribution), input, output, alpha, beta).wait();
  });
}

int penstock_iredistribute(const penstock_redistribution* redistribution, const void* input, void* output, double alpha,
                           double beta, penstock_request** request) {
  return guarded([&] {
    constexpr const char* kFunction = "penstock_iredistribute";
    const Redistribution& mine = required(kFunction, redistribution);
    or_fail(NextRun{mine}, [&] { require(request, kFunction, "request"); });
    *request = c::wrap<penstock_request>(start(kFunction, mine, input, output, alpha, beta));
  });
}

int penstock_redistribution_workspace(const penstock_redistribution* redistribution, uint64_t* bytes) {
  return guarded([&] {
    require(redistribution, "penstock_redistribution_workspace", "redistribution");
    require(bytes, "penstock_redistribution_workspace", "bytes");
    *bytes = unwrap<Redistribution>(redistribution).workspace_bytes();
  });
}

int penstock_iredistribute_in(const penstock_redistribution* redistribution, const void* input, void* output,
                              double alpha, double beta, void* workspace, uint64_t workspace_bytes,
                              penstock_request** request) {
  return guarded([&] {
    constexpr const char* kFunction = "penstock_iredistribute_in";
    const Redistribution& mine = required(kFunction, redistribution);
    or_fail(NextRun{mine}, [&] { require(request, kFunction, "request"); });
    const Bytes memory{static_cast<std::byte*>(workspace), workspace == nullptr ? 0 : workspace_bytes};
    *request = c::wrap<penstock_request>(start(kFunction, mine, input, output, alpha, beta, memory));
  });
}

int penstock_iredistribute_parts(const penstock_redistribution* redistribution, const penstock_parts* input,
                                 const penstock_parts* output, double alpha, double beta, void* workspace,
                                 uint64_t workspace_bytes, penstock_request** request) {
  return guarded([&] {
    constexpr const char* kFunction = "penstock_iredistribute_parts";
    const Redistribution& mine = required(kFunction, redistribution);
    or_fail(NextRun{mine}, [&] {
      require(request, kFunction, "request");
      for (const penstock_parts* parts : {input, output})
        if (parts == nullptr || (parts->parts != 0 && (parts->data == nullptr || parts->strides_elems == nullptr)))
          throw Error(ErrorCode::invalid_argument,
                      std::string(kFunction) + ": input or output is NULL, or lacks data or strides");
    });
    *request =
        c::wrap<penstock_request>(mine.start_parts(parts_of<ConstStridedParts>(*input, mine.source().dimensions()),
                                                   parts_of<StridedParts>(*output, mine.target().dimensions()), alpha,
                                                   beta, workspace_of(workspace, workspace_bytes)));
  });
}

int penstock_iredistribute_once(penstock_comm* comm, const penstock_layout* source, penstock_dtype source_dtype,
                                const void* input, const penstock_layout* target, penstock_dtype target_dtype,
                                void* output, char op, double alpha, double beta, penstock_request** request) {
  return guarded([&] {
    constexpr const char* kFunction = "penstock_iredistribute_once";
    require(comm, kFunction, "comm");
    auto& on = unwrap<Comm>(comm);
    RedistributionOptions options;
    std::uint64_t input_bytes = 0;
    std::uint64_t output_bytes = 0;
    or_fail(on, [&] {
      require(request, kFunction, "request");
      require(source, kFunction, "source");
      require(target, kFunction, "target");
      options.dtype = static_cast<DType>(target_dtype);
      options.source_dtype = static_cast<DType>(source_dtype);
      options.op = matrix_op_from_name(std::string_view(&op, 1));
      const auto bytes = [&](const penstock_layout* layout, DType dtype) {
        return static_cast<std::uint64_t>(unwrap<Layout>(layout).local_size_elems(on.rank())) * size_bytes(dtype);
      };
      input_bytes = bytes(source, options.input_dtype());
      output_bytes = bytes(target, options.dtype);
      if ((input == nullptr && input_bytes != 0) || (output == nullptr && output_bytes != 0))
        throw Error(ErrorCode::invalid_argument,
                    std::string(kFunction) + ": a buffer is NULL on a rank that has a part of the array");
    });
    *request = c::wrap<penstock_request>(start_redistribution(
        on, {unwrap<Layout>(source), unwrap<Layout>(target), options, alpha, beta},
        {static_cast<const std::byte*>(input), input_bytes}, {static_cast<std::byte*>(output), output_bytes}));
  });
}
