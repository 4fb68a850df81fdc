// The text form of a layout: "layout1;row;4;cyclic:8192,32,2;cut:0,10,20;owners:0,1,2,3". Lists hold decimal numbers.
// "a+n" stands for n consecutive owners from a on, so a grid numbered in row order stays short.
#include <charconv>

#include "layout/checked.hpp"
#include "penstock/error.hpp"
#include "penstock/layout.hpp"

namespace penstock {
namespace {

[[noreturn]] void reject(std::string_view text, const std::string& why) {
  constexpr std::size_t kShown = 120;
  throw Error(ErrorCode::invalid_argument, "layout: cannot parse '" + std::string(text.substr(0, kShown)) +
                                               (text.size() > kShown ? "…" : "") + "': " + why);
}

std::string_view take(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view field = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return field;
}

template <class Integer>
Integer number(std::string_view field, std::string_view text) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size())
    reject(text, "'" + std::string(field) + "' is not a number that fits");
  return value;
}

std::vector<std::int64_t> numbers(std::string_view list, std::string_view text) {
  std::vector<std::int64_t> values;
  while (!list.empty()) values.push_back(number<std::int64_t>(take(list, ','), text));
  return values;
}

std::vector<std::int32_t> parse_owners(std::string_view list, std::int64_t tiles, std::string_view text) {
  std::vector<std::int32_t> owners;
  while (!list.empty()) {
    std::string_view run = take(list, ',');
    const auto first = number<std::int32_t>(take(run, '+'), text);
    const auto count = run.empty() ? 1 : number<std::int32_t>(run, text);
    if (count < 1 || first < 0 || static_cast<std::int64_t>(owners.size()) + count > tiles)
      reject(text, "an owner is out of range, or there are more owners than blocks");
    for (std::int32_t i = 0; i < count; ++i) owners.push_back(static_cast<std::int32_t>(std::int64_t{first} + i));
  }
  return owners;
}

}  // namespace

std::string Layout::serialize() const {
  if (!copies_.empty()) {
    std::string text = "copies1";
    for (const Layout& copy : copies_) text += "|" + copy.serialize();
    return text;
  }
  std::string text = storage_ == Order::row_major ? "layout1;row;" : "layout1;column;";
  text += std::to_string(ranks_) + ";";
  const auto list = [](const std::vector<std::int64_t>& values) {
    std::string written;
    for (std::size_t i = 0; i < values.size(); ++i) written += (i ? "," : "") + std::to_string(values[i]);
    return written;
  };
  if (!tables_->boxes.empty()) {
    text += "shape:" + list(shape_) + ";";
    for (const LayoutBox& box : tables_->boxes)
      text += "box:" + std::to_string(box.owner) + "," + list(box.begin) + "," + list(box.shape) + ";";
    return text + "end";
  }
  for (const Axis& axis : tables_->axes) {
    if (axis.is_cyclic()) {
      text += "cyclic:" + std::to_string(axis.length()) + "," + std::to_string(axis.block()) + "," +
              std::to_string(axis.coordinates()) + (axis.skipped() > 0 ? "," + std::to_string(axis.skipped()) : "") +
              ";";
      continue;
    }
    text += "cut:" + list(axis.borders()) + ";";
  }
  text += "owners:";
  for (std::size_t i = 0; i < tables_->owners.size();) {
    std::size_t end = i + 1;
    while (end < tables_->owners.size() && tables_->owners[end] == tables_->owners[end - 1] + 1) ++end;
    text += (i ? "," : "") + std::to_string(tables_->owners[i]);
    if (end - i > 1) text += "+" + std::to_string(end - i);
    i = end;
  }
  return text;
}

Layout Layout::parse(std::string_view text) {
  std::string_view rest = text;
  if (text.starts_with("copies1|")) {
    std::vector<Layout> copies;
    take(rest, '|');
    while (!rest.empty()) copies.push_back(parse(take(rest, '|')));
    return replicated(std::move(copies));
  }
  if (take(rest, ';') != "layout1") reject(text, "it does not begin with 'layout1;'");
  const std::string_view storage = take(rest, ';');
  if (storage != "row" && storage != "column") reject(text, "the storage order must be 'row' or 'column'");
  const auto ranks = number<std::int32_t>(take(rest, ';'), text);
  const Order order = storage == "row" ? Order::row_major : Order::column_major;
  std::vector<Axis> axes;
  std::vector<std::int64_t> shape;
  std::vector<LayoutBox> boxes;
  std::int64_t tiles = 1;
  while (!rest.empty()) {
    std::string_view list = take(rest, ';');
    const std::string_view kind = take(list, ':');
    if (kind == "owners") {
      if (!rest.empty()) reject(text, "there is something after the owners");
      return from_axes(std::move(axes), parse_owners(list, tiles, text), ranks, order);
    }
    if (kind == "end" && !boxes.empty()) return Layout::boxes(std::move(shape), std::move(boxes), ranks, order);
    std::vector<std::int64_t> values = numbers(list, text);
    if (kind == "shape" && axes.empty() && boxes.empty()) {
      shape = std::move(values);
      continue;
    }
    if (kind == "box" && !shape.empty() && values.size() == 2 * shape.size() + 1) {
      const auto middle = values.begin() + 1 + static_cast<std::ptrdiff_t>(shape.size());
      if (values[0] < 0 || values[0] >= ranks) reject(text, "the owner of a box is out of range");
      boxes.push_back({static_cast<std::int32_t>(values[0]), {values.begin() + 1, middle}, {middle, values.end()}});
      continue;
    }
    if (kind == "cyclic" && (values.size() == 3 || values.size() == 4))
      axes.push_back(Axis::cyclic(values[0], values[1], values[2], values.size() == 4 ? values[3] : 0));
    else if (kind == "cut")
      axes.push_back(Axis::cut(std::move(values)));
    else
      reject(text, "'" + std::string(kind) + "' is not an axis, or has the wrong number of values");
    tiles = layout::checked_product(tiles, axes.back().coordinates(), "layout: the number of blocks");
  }
  reject(text, "the owners are missing");
}

}  // namespace penstock
