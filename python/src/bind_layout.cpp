// _penstock.Layout, which penstock.layout wraps.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "penstock/error.hpp"
#include "penstock/layout.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

Order order_from_name(const std::string& name, const char* argument) {
  if (name == "row") return Order::row_major;
  if (name == "column" || name == "col") return Order::column_major;
  throw Error(ErrorCode::invalid_argument, std::string(argument) + " is '" + name + "'; expected 'row' or 'column'");
}

using Lengths = std::vector<std::int64_t>;

Layout block_cyclic(Lengths shape, Lengths block, Lengths grid, Lengths first, std::vector<std::int32_t> ranks,
                    const std::string& order, const std::string& storage) {
  return Layout::block_cyclic({.shape = std::move(shape),
                               .block = std::move(block),
                               .grid = std::move(grid),
                               .first_process = std::move(first),
                               .ranks = std::move(ranks),
                               .grid_order = order_from_name(order, "order"),
                               .storage = order_from_name(storage, "storage")});
}

Layout grid(std::vector<Lengths> splits, std::vector<std::int32_t> owners, std::int32_t ranks,
            const std::string& storage) {
  return Layout::grid(std::move(splits), std::move(owners), ranks, order_from_name(storage, "storage"));
}

using Box = std::tuple<std::int32_t, Lengths, Lengths>;  // (owner, begin, shape)

Layout boxes(Lengths shape, const std::vector<Box>& given, std::int32_t ranks, const std::string& storage) {
  std::vector<LayoutBox> boxes;
  for (const auto& [owner, begin, extent] : given) boxes.push_back({owner, begin, extent});
  return Layout::boxes(std::move(shape), std::move(boxes), ranks, order_from_name(storage, "storage"));
}

Layout replicated(const std::vector<const Layout*>& given) {
  std::vector<Layout> copies;
  for (const Layout* copy : given) copies.push_back(*copy);
  return Layout::replicated(std::move(copies));
}

/// For each tile of a rank: (local offset, local shape, strides, per dimension its intervals (global starts, lengths)).
nb::list tiles(const Layout& layout, std::int32_t rank) {
  nb::list result;
  const Layout& copy = layout.copy(std::max(layout.copy_of(rank), 0));
  for (const LayoutTile& tile : layout.local_tiles(rank)) {
    nb::list axes;
    for (std::size_t d = 0; d < layout.dimensions(); ++d) {
      const Axis& axis = copy.axes()[d];
      nb::list starts;
      nb::list lengths;
      for (std::int64_t i = tile.coordinate[d]; i < axis.intervals(); i += axis.coordinates()) {
        starts.append(axis.start(i));
        lengths.append(axis.start(i + 1) - axis.start(i));
      }
      axes.append(nb::make_tuple(starts, lengths));
    }
    result.append(nb::make_tuple(tile.local_offset_elems, nb::tuple(nb::cast(tile.shape)),
                                 nb::tuple(nb::cast(tile.strides_elems)), axes));
  }
  return result;
}

nb::list blocks(const Layout& layout, std::int32_t rank) {
  nb::list result;
  for (const LayoutBlock& block : layout.local_blocks(rank))
    result.append(nb::make_tuple(nb::tuple(nb::cast(block.global_start)), nb::tuple(nb::cast(block.shape)),
                                 nb::tuple(nb::cast(block.strides_elems)), block.local_offset_elems));
  return result;
}

}  // namespace
}  // namespace penstock::python

void bind_layout(nb::module_& module) {
  using namespace penstock;
  nb::class_<Layout>(module, "Layout")
      .def_static("block_cyclic", &python::block_cyclic)
      .def_static("grid", &python::grid)
      .def_static("boxes", &python::boxes)
      .def_static("replicated", &python::replicated)
      .def_static("even", &Layout::even)
      .def_static("whole", &Layout::whole)
      .def_static("parse", &Layout::parse)
      .def("serialize", &Layout::serialize)
      .def_prop_ro(
          "shape", [](const Layout& layout) { return nb::tuple(nb::cast(layout.shape())); },
          nb::for_getter(nb::sig("def shape(self) -> tuple[int, ...]")))
      .def_prop_ro("size", &Layout::size_elems)
      .def_prop_ro("ranks", &Layout::ranks)
      .def_prop_ro("storage",
                   [](const Layout& layout) { return layout.storage() == Order::row_major ? "row" : "column"; })
      .def("splits", &Layout::splits)
      .def("owner", [](const Layout& layout, const std::vector<std::int64_t>& block) { return layout.owner(block); })
      .def("local_size", &Layout::local_size_elems)
      .def(
          "local_shape",
          [](const Layout& layout, std::int32_t rank) { return nb::tuple(nb::cast(layout.local_shape(rank))); },
          nb::sig("def local_shape(self, rank: int, /) -> tuple[int, ...]"))
      .def("tiles", &python::tiles,
           nb::sig("def tiles(self, rank: int, /) -> list[tuple[int, tuple[int, ...], tuple[int, ...], "
                   "list[tuple[list[int], list[int]]]]]"))
      .def(
          "part_shapes",
          [](const Layout& layout, std::int32_t rank) {
            nb::list shapes;
            for (const auto& shape : layout.local_part_shapes(rank)) shapes.append(nb::tuple(nb::cast(shape)));
            return shapes;
          },
          nb::sig("def part_shapes(self, rank: int, /) -> list[tuple[int, ...]]"))
      .def(
          "box_begins",
          [](const Layout& layout, std::int32_t rank) {
            nb::list begins;
            for (const LayoutBox& box : layout.copy(std::max(layout.copy_of(rank), 0)).given_boxes())
              if (box.owner == rank) begins.append(nb::tuple(nb::cast(box.begin)));
            return begins;
          },
          nb::sig("def box_begins(self, rank: int, /) -> list[tuple[int, ...]]"))
      .def("blocks", &python::blocks,
           nb::sig("def blocks(self, rank: int, /) -> "
                   "list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]]"))
      .def("subarray", [](const Layout& layout, const python::Lengths& begin,
                          const python::Lengths& shape) { return layout.subarray(begin, shape); })
      .def_prop_ro("copies", &Layout::copies)
      .def("copy", [](const Layout& layout, std::int32_t index) { return Layout(layout.copy(index)); })
      .def("on_ranks", [](const Layout& layout, const std::vector<std::int32_t>& ranks,
                          std::int32_t total) { return layout.on_ranks(ranks, total); })
      .def("relabeled", [](const Layout& layout, const std::vector<std::int32_t>& permutation) {
        return layout.relabeled(permutation);
      });
}
