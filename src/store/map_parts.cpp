// The object, front to back:
//
//   magic, format, size of the root, size of all blocks
//   root: head of the map, top nodes of the two trees
//   checksum of all of the above
//   blocks: leaves of the sources, leaves of the fragments, then the nodes above them
//   checksum of all of the above, for those who read the object as a whole
//
// The children of a node lie one behind the other, so a run of them is one access.
#include "store/map_parts.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "penstock/error.hpp"
#include "store/encoding.hpp"
#include "store/map_coders.hpp"
#include "store/record.hpp"
#include "store/version_map.hpp"

namespace penstock::store {

namespace {

constexpr std::size_t kLeafFragments = 512;
constexpr std::size_t kLeafSources = 128;
constexpr std::size_t kLeafBytes = 8 << 10;
constexpr std::size_t kFanOut = 256;
/// Of the head: magic, format, unused, size of the root, size of the blocks.
constexpr std::uint64_t kPreambleBytes = 4 + 2 + 2 + 8 + 8;
constexpr std::uint64_t kSumBytes = 16;
/// The first access to an object; most roots are smaller.
constexpr std::uint64_t kFirstBytes = 32 << 10;
/// The same for a delta, which knows no identities. A reader opens many.
constexpr std::uint64_t kFirstOfDeltaBytes = 14 << 10;
/// Reading this much takes as long as the accesses that it saves.
constexpr std::uint64_t kReadWholeBytes = 64 << 10;
constexpr std::uint64_t kMostAtOnceBytes = 1 << 20;
constexpr std::size_t kMostLeavesAtOnce = 64;
constexpr std::uint64_t kMostHeight = 8;

/// A block as its parent describes it.
struct BlockReference {
  std::uint64_t first = 0;  ///< the first key in it: an offset in the blob, or the number of a source
  std::uint64_t size_bytes = 0;
  Checksum sum;
};

void write_node(Encoder& encoder, std::uint64_t children_at, std::span<const BlockReference> children) {
  encoder.compact(children_at);
  encoder.compact(children.size());
  std::uint64_t first = 0;
  for (const BlockReference& child : children) {
    encoder.compact(child.first - first);
    encoder.compact(child.size_bytes);
    encoder.sum(child.sum);
    first = child.first;
  }
}

/// Writes the blocks of one tree, from the leaves up.
class TreeWriter {
 public:
  explicit TreeWriter(Encoder& blocks) : blocks_(blocks), level_at_(blocks.bytes().size()) {}

  void add(std::uint64_t first, Encoder& block) {
    const std::vector<std::byte> bytes = block.take();
    level_.push_back({first, bytes.size(), checksum(ConstBytes(bytes))});
    blocks_.raw(bytes);
  }

  /// Puts nodes above the leaves until one remains, and writes that one to the root.
  void finish(Encoder& root) {
    std::uint64_t height = 0;
    for (; level_.size() > kFanOut; ++height) {
      const std::vector<BlockReference> below = std::move(level_);
      std::uint64_t at = std::exchange(level_at_, blocks_.bytes().size());
      level_.clear();
      for (std::size_t done = 0; done < below.size(); done += kFanOut) {
        const auto children = std::span(below).subspan(done, std::min(kFanOut, below.size() - done));
        Encoder node;
        write_node(node, at, children);
        for (const BlockReference& child : children) at += child.size_bytes;
        add(children.front().first, node);
      }
    }
    root.compact(height);
    write_node(root, level_at_, level_);
  }

 private:
  Encoder& blocks_;
  std::uint64_t level_at_;  ///< where the blocks of the level begin
  std::vector<BlockReference> level_;
};

/// A leaf of the fragments. A fragment's source is a place in `numbers`, the sources that occur in the leaf.
struct FragmentLeaf {
  std::vector<Fragment> fragments;
  std::vector<std::uint64_t> numbers;
  std::vector<const Source*> sources;  ///< of the numbers, once they were looked up

  static FragmentLeaf read(Decoder& decoder) {
    FragmentLeaf leaf;
    leaf.numbers.resize(decoder.compact_count(1));
    std::uint64_t before = 0;
    for (std::uint64_t& number : leaf.numbers) {
      number = before += static_cast<std::uint64_t>(decoder.compact_signed());
    }
    leaf.fragments.resize(decoder.compact_count(4));
    PlaceCoder places(leaf.numbers.size());
    for (Fragment& fragment : leaf.fragments) fragment = places.read(decoder);
    if (leaf.fragments.empty()) decoder.fail("has a block without fragments");
    return leaf;
  }
};

void write_leaf(Encoder& encoder, std::span<const Fragment> fragments, std::span<const std::uint64_t> numbers) {
  encoder.compact(numbers.size());
  std::uint64_t before = 0;
  for (const std::uint64_t number : numbers)
    encoder.compact_signed(static_cast<std::int64_t>(number - std::exchange(before, number)));
  encoder.compact(fragments.size());
  PlaceCoder places(numbers.size());
  for (const Fragment& fragment : fragments) places.write(encoder, fragment, fragment.source);
}

void write_fragments(TreeWriter& tree, const Fragments& fragments, std::span<const std::uint32_t> numbers,
                     std::size_t source_count) {
  std::vector<Fragment> leaf;
  std::vector<std::uint64_t> leaf_numbers;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> places(source_count);  // (leaf + 1, place in it)
  std::uint64_t leaves = 1;
  const auto flush = [&] {
    if (leaf.empty()) return;
    Encoder encoder;
    write_leaf(encoder, leaf, leaf_numbers);
    tree.add(leaf.front().offset_bytes, encoder);
    leaf.clear();
    leaf_numbers.clear();
    ++leaves;
  };
  fragments.for_each([&](const Fragment& fragment) {
    const std::uint32_t number = numbers[fragment.source];
    auto& [seen, place] = places[number];
    if (seen != leaves) {
      seen = leaves;
      place = static_cast<std::uint32_t>(leaf_numbers.size());
      leaf_numbers.push_back(number);
    }
    leaf.push_back(fragment);
    leaf.back().source = place;
    if (leaf.size() == kLeafFragments) flush();
  });
  flush();
}

/// A leaf of the sources.
struct SourceLeaf {
  Sources sources;

  static SourceLeaf read(Decoder& decoder, const std::string& folder) {
    SourceLeaf leaf;
    leaf.sources.resize(decoder.compact_count(2));
    KeyCoder keys;
    for (auto& source : leaf.sources) source = read_source(decoder, keys, folder);
    if (leaf.sources.empty()) decoder.fail("has a block without sources");
    return leaf;
  }
};

void write_sources(TreeWriter& tree, const Sources& sources, const std::string& folder) {
  for (std::size_t done = 0; done < sources.size();) {
    // Sources that hold their bytes themselves are large.
    std::size_t next = done;
    Encoder leaf;
    for (KeyCoder keys; next < sources.size() && next - done < kLeafSources && leaf.bytes().size() < kLeafBytes;) {
      write_source(leaf, keys, folder, sources[next++].get());
    }
    Encoder block;
    block.compact(next - done);
    block.raw(leaf.bytes());
    tree.add(std::exchange(done, next), block);
  }
}

struct Root {
  MapHead head;
  std::string folder;
  std::uint64_t blocks_bytes = 0;
};

/// Reads all but the two top nodes, which follow.
Root read_root(Decoder& decoder) {
  Root root;
  const bool is_delta = decoder.number<std::uint32_t>() == kDeltaMagic;
  decoder.number<std::uint32_t>();
  decoder.number<std::uint64_t>();
  root.blocks_bytes = decoder.number<std::uint64_t>();
  for (std::uint64_t* value : {&root.head.blob_id, &root.head.version, &root.head.size_bytes, &root.head.fence_below}) {
    *value = decoder.number<std::uint64_t>();
  }
  if (is_delta) {
    root.head.base = decoder.number<std::uint64_t>();
    root.head.replayed.cost = decoder.compact();
    root.head.replayed.index_bytes = decoder.compact();
    if (root.head.base >= root.head.version) decoder.fail("begins at or behind its version");
  }
  root.folder = decoder.text();
  root.head.identities = IdentityCoder::read(decoder);
  root.head.source_count = decoder.compact();
  root.head.fragment_count = decoder.compact();
  return root;
}

/// A lookup's access to the trees of an object. `lock` protects them, and is not held while `read` reads from storage.
struct Access {
  std::unique_lock<std::mutex>& lock;
  std::condition_variable& read_ended;
  std::function<std::vector<std::byte>(std::uint64_t at, std::uint64_t size_bytes)> read;
};

/// One tree, of which those blocks are in memory that lookups have read. The lock is held in all functions, except
/// while blocks are read. Meanwhile others use the tree: what is in memory stays where it is, a block that is being
/// read belongs to the lookup that reads it, and others that need it wait for it.
template <typename Leaf>
class BlockTree {
 public:
  using DecodeLeaf = std::function<Leaf(Decoder&)>;

  void read_top(Decoder& decoder, std::uint64_t blocks_bytes, std::string name) {
    name_ = std::move(name);
    blocks_bytes_ = blocks_bytes;
    height_ = decoder.compact();
    if (height_ > kMostHeight) decoder.fail("has a tree of height " + std::to_string(height_));
    top_ = read_node(decoder);
  }

  /// Appends the leaves that may hold keys in [begin, end), kMostLeavesAtOnce at most, with the first key of each.
  /// Returns `end`, or where the leaves begin that were left out.
  std::uint64_t find(std::uint64_t begin, std::uint64_t end, const Access& access, const DecodeLeaf& decode,
                     std::vector<std::pair<std::uint64_t, Leaf*>>& found) {
    return find_in(top_, height_, begin, end, access, decode, found);
  }

 private:
  struct Node;
  struct Child {
    BlockReference block;
    std::uint64_t at = 0;
    bool is_being_read = false;
    std::unique_ptr<Node> node;
    std::unique_ptr<Leaf> leaf;
  };
  struct Node {
    std::vector<Child> children;
  };

  Node read_node(Decoder& decoder) const {
    Node node;
    std::uint64_t at = decoder.compact();
    const std::uint64_t count = decoder.compact_count(2 + kSumBytes);
    node.children.resize(count);
    std::uint64_t first = 0;
    for (Child& child : node.children) {
      const std::uint64_t step = decoder.compact();
      if (step > UINT64_MAX - first || (step == 0 && &child != node.children.data())) {
        decoder.fail("has blocks that are out of order");
      }
      child.block.first = first += step;
      child.block.size_bytes = decoder.compact();
      child.block.sum = decoder.sum();
      child.at = at;
      if (at > blocks_bytes_ || child.block.size_bytes > blocks_bytes_ - at) {
        decoder.fail("refers to a block behind its end");
      }
      at += child.block.size_bytes;
    }
    return node;
  }

  std::uint64_t find_in(Node& node, std::uint64_t height, std::uint64_t begin, std::uint64_t end, const Access& access,
                        const DecodeLeaf& decode, std::vector<std::pair<std::uint64_t, Leaf*>>& found) {
    const auto before = [](std::uint64_t key, const Child& child) { return key < child.block.first; };
    auto& children = node.children;
    auto child = std::upper_bound(children.begin(), children.end(), begin, before);
    if (child != children.begin()) --child;
    auto last = std::partition_point(child, children.end(), [&](const Child& one) { return one.block.first < end; });
    if (height > 0) {
      for (; child != last; ++child) {
        if (found.size() >= kMostLeavesAtOnce) return child->block.first;
        load(child, child + 1, access,
             [&](Child& one, Decoder& decoder) { one.node = std::make_unique<Node>(read_node(decoder)); });
        const std::uint64_t rest = find_in(*child->node, height - 1, begin, end, access, decode, found);
        if (rest != end) return rest;
      }
      return end;
    }
    const auto room = static_cast<std::ptrdiff_t>(kMostLeavesAtOnce - std::min(kMostLeavesAtOnce, found.size()));
    const auto stop = last - child > room ? child + room : last;
    load(child, stop, access,
         [&](Child& one, Decoder& decoder) { one.leaf = std::make_unique<Leaf>(decode(decoder)); });
    for (; child != stop; ++child) found.emplace_back(child->block.first, child->leaf.get());
    return stop == last ? end : stop->block.first;
  }

  using Children = typename std::vector<Child>::iterator;

  static bool is_loaded(const Child& child) { return child.node || child.leaf; }

  /// Reads those of the children that are not in memory; neighbours by one access.
  template <typename Decode>
  void load(Children from, Children to, const Access& access, const Decode& decode) {
    while (from != to) {
      if (is_loaded(*from)) {
        ++from;
        continue;
      }
      if (from->is_being_read) {
        access.read_ended.wait(access.lock);
        continue;
      }
      auto last = from;
      std::uint64_t bytes = 0;
      do {
        bytes += last->block.size_bytes;
        ++last;
      } while (last != to && !is_loaded(*last) && !last->is_being_read &&
               bytes + last->block.size_bytes <= kMostAtOnceBytes);
      load_run(from, last, bytes, access, decode);
      from = last;
    }
  }

  template <typename Decode>
  void load_run(Children from, Children to, std::uint64_t bytes, const Access& access, const Decode& decode) {
    const auto mark = [&](bool is_being_read) {
      for (auto child = from; child != to; ++child) child->is_being_read = is_being_read;
    };
    std::vector<std::byte> run;
    std::exception_ptr failure;
    const std::uint64_t at = from->at;
    mark(true);
    access.lock.unlock();
    try {
      run = access.read(at, bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    access.lock.lock();
    mark(false);
    access.read_ended.notify_all();
    if (failure) std::rethrow_exception(failure);
    ConstBytes rest = run;
    for (auto child = from; child != to; ++child) {
      const ConstBytes block = rest.first(child->block.size_bytes);
      rest = rest.subspan(block.size());
      if (const Checksum found = checksum(block); found != child->block.sum) {
        throw Error(ErrorCode::corrupt, name_ + " is damaged: its block at " + std::to_string(child->at) + " (" +
                                            std::to_string(block.size()) + " bytes) has checksum " + to_string(found) +
                                            "; expected " + to_string(child->block.sum));
      }
      Decoder decoder(block, name_);
      decode(*child, decoder);
      decoder.end();
    }
  }

  std::string name_;
  std::uint64_t blocks_bytes_ = 0;
  std::uint64_t height_ = 0;
  Node top_;
};

}  // namespace

std::vector<std::byte> encode_in_parts(std::uint32_t magic, const MapHead& head, const Sources& sources,
                                       const Fragments& fragments, std::span<const std::uint32_t> numbers) {
  std::string folder;
  for (const auto& source : sources) {
    if (!source) continue;
    if (const auto key = DataKey::of(source->object().key)) {
      folder = key->folder;
      break;
    }
  }
  Encoder blocks;
  TreeWriter source_tree(blocks);
  write_sources(source_tree, sources, folder);
  TreeWriter fragment_tree(blocks);
  write_fragments(fragment_tree, fragments, numbers, sources.size());
  Encoder root;
  for (const std::uint64_t value : {head.blob_id, head.version, head.size_bytes, head.fence_below}) root.number(value);
  if (magic == kDeltaMagic) {
    root.number(head.base);
    root.compact(head.replayed.cost);
    root.compact(head.replayed.index_bytes);
  }
  root.text(folder);
  IdentityCoder::write(root, head.identities);
  root.compact(sources.size());
  root.compact(fragments.count());
  source_tree.finish(root);
  fragment_tree.finish(root);
  Encoder object;
  encode_head(object, magic, any_compressed(sources) ? kCompressedPartsFormat : kPartsFormat);
  object.number(std::uint16_t{0});
  object.number(std::uint64_t{root.bytes().size()});
  object.number(std::uint64_t{blocks.bytes().size()});
  object.raw(root.bytes());
  object.sum(checksum(ConstBytes(object.bytes())));
  object.raw(blocks.bytes());
  return object.seal();
}

WholeMap decode_parts(ConstBytes content, const std::string& name) {
  Decoder preamble(content, name);
  preamble.raw(8);
  const auto root_bytes = preamble.number<std::uint64_t>();
  const auto blocks_bytes = preamble.number<std::uint64_t>();
  preamble.raw(root_bytes);
  preamble.sum();
  const ConstBytes blocks = preamble.raw(blocks_bytes);
  preamble.end();
  Decoder decoder(content.first(kPreambleBytes + root_bytes), name);
  Root root = read_root(decoder);
  WholeMap map;
  map.head = std::move(root.head);
  Decoder leaves(blocks, name);
  while (map.sources.size() < map.head.source_count) {
    for (auto& source : SourceLeaf::read(leaves, root.folder).sources) map.sources.push_back(std::move(source));
  }
  std::uint64_t end = 0;
  while (map.fragments.size() < map.head.fragment_count) {
    const FragmentLeaf leaf = FragmentLeaf::read(leaves);
    for (const std::uint64_t number : leaf.numbers) {
      if (number >= map.sources.size()) leaves.fail("refers to a source that it does not list");
    }
    if (leaf.fragments.front().offset_bytes < end) leaves.fail("has places that overlap or are out of order");
    end = leaf.fragments.back().end_bytes();
    for (Fragment fragment : leaf.fragments) {
      fragment.source = static_cast<std::uint32_t>(leaf.numbers[fragment.source]);
      map.fragments.push_back(fragment);
    }
  }
  if (map.sources.size() != map.head.source_count || map.fragments.size() != map.head.fragment_count) {
    leaves.fail("has more places or sources than it counts");
  }
  return map;
}

namespace {

class ObjectInParts final : public StoredMap {
 public:
  /// `top` holds the two top nodes.
  ObjectInParts(std::shared_ptr<const Backend> backend, std::string key, std::string name, std::uint64_t blocks_at,
                Root root, Decoder& top)
      : StoredMap(std::move(root.head), blocks_at + root.blocks_bytes + kSumBytes),
        backend_(std::move(backend)),
        key_(std::move(key)),
        name_(std::move(name)),
        folder_(std::move(root.folder)),
        blocks_at_(blocks_at) {
    sources_.read_top(top, root.blocks_bytes, name_);
    fragments_.read_top(top, root.blocks_bytes, name_);
    top.end();
  }

  void visit(
      std::uint64_t offset_bytes, std::uint64_t size_bytes,
      const std::function<void(std::uint64_t, std::uint64_t, const Source*, std::uint64_t)>& visitor) const override;

  /// Gives the map that is asked about what this one does not have. Without one that is zeros.
  void lie_over(VersionMap below) { below_.emplace(std::move(below)); }

 private:
  using FoundLeaves = std::vector<std::pair<std::uint64_t, FragmentLeaf*>>;
  using FoundSources = std::vector<std::pair<std::uint64_t, SourceLeaf*>>;

  std::vector<std::byte> read_blocks(std::uint64_t at, std::uint64_t size_bytes) const {
    std::vector<std::byte> blocks(size_bytes);
    backend_->read(key_, blocks_at_ + at, blocks);
    return blocks;
  }
  [[noreturn]] void fail(const char* what) const { throw Error(ErrorCode::corrupt, name_ + what); }
  /// Reads the leaves of the sources with these numbers, which are ascending.
  FoundSources find_sources(const std::vector<std::uint64_t>& numbers, const Access& access) const;
  const Source* source_of(const FoundSources& found, std::uint64_t number) const;
  /// Looks up the sources of the leaves.
  void resolve(const FoundLeaves& leaves, const Access& access) const;

  const std::shared_ptr<const Backend> backend_;
  const std::string key_;
  const std::string name_;
  const std::string folder_;
  const std::uint64_t blocks_at_;
  std::optional<VersionMap> below_;
  mutable std::mutex mutex_;
  mutable std::condition_variable read_ended_;
  mutable BlockTree<SourceLeaf> sources_;
  mutable BlockTree<FragmentLeaf> fragments_;
};

ObjectInParts::FoundSources ObjectInParts::find_sources(const std::vector<std::uint64_t>& numbers,
                                                        const Access& access) const {
  FoundSources found;
  const auto decode = [&](Decoder& decoder) { return SourceLeaf::read(decoder, folder_); };
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t next = i + 1;
    while (next < numbers.size() && numbers[next] - numbers[next - 1] <= kLeafSources) ++next;
    const std::uint64_t end = numbers[next - 1] + 1;
    for (std::uint64_t at = numbers[i]; at < end;) {
      FoundSources some;
      at = sources_.find(at, end, access, decode, some);
      found.insert(found.end(), some.begin(), some.end());
    }
    i = next;
  }
  return found;
}

const Source* ObjectInParts::source_of(const FoundSources& found, std::uint64_t number) const {
  const auto after = std::upper_bound(found.begin(), found.end(), number,
                                      [](std::uint64_t key, const auto& leaf) { return key < leaf.first; });
  if (after == found.begin()) fail(" refers to a source that it does not list");
  const auto& [first, leaf] = *(after - 1);
  if (number - first >= leaf->sources.size()) fail(" refers to a source that it does not list");
  return leaf->sources[number - first].get();
}

void ObjectInParts::resolve(const FoundLeaves& leaves, const Access& access) const {
  std::vector<std::uint64_t> wanted;
  for (const auto& [first, leaf] : leaves) {
    if (leaf->sources.empty()) wanted.insert(wanted.end(), leaf->numbers.begin(), leaf->numbers.end());
  }
  if (wanted.empty()) return;
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  const FoundSources found = find_sources(wanted, access);
  for (const auto& [first, leaf] : leaves) {
    if (!leaf->sources.empty()) continue;
    std::vector<const Source*> sources;
    for (const std::uint64_t number : leaf->numbers) sources.push_back(source_of(found, number));
    leaf->sources = std::move(sources);
  }
}

void ObjectInParts::visit(
    std::uint64_t offset, std::uint64_t size,
    const std::function<void(std::uint64_t, std::uint64_t, const Source*, std::uint64_t)>& visitor) const {
  const std::uint64_t end = offset + size;
  const auto visit_gap = [&](std::uint64_t gap_end) {
    if (below_) {
      below_->visit(offset, gap_end - offset, visitor);
    } else {
      visitor(offset, gap_end - offset, nullptr, 0);
    }
  };
  FoundLeaves leaves;
  for (std::uint64_t from = offset; from < end;) {
    leaves.clear();
    {
      // Leaves stay where they are, and never change once their sources are known.
      std::unique_lock lock(mutex_);
      const Access access{lock, read_ended_,
                          [&](std::uint64_t at, std::uint64_t size_bytes) { return read_blocks(at, size_bytes); }};
      from = fragments_.find(from, end, access, FragmentLeaf::read, leaves);
      resolve(leaves, access);
    }
    for (const auto& [first, leaf] : leaves) {
      auto fragment = std::partition_point(leaf->fragments.begin(), leaf->fragments.end(),
                                           [&](const Fragment& one) { return one.end_bytes() <= offset; });
      for (; fragment != leaf->fragments.end() && fragment->offset_bytes < end; ++fragment) {
        if (fragment->offset_bytes > offset) {
          visit_gap(fragment->offset_bytes);
          offset = fragment->offset_bytes;
        }
        const std::uint64_t step = std::min(end, fragment->end_bytes()) - offset;
        visitor(offset, step, leaf->sources[fragment->source],
                fragment->source_offset_bytes + offset - fragment->offset_bytes);
        offset += step;
      }
    }
  }
  if (offset < end) visit_gap(end);
}

}  // namespace

namespace {

/// Null if the object is not in parts.
std::shared_ptr<ObjectInParts> open_parts(std::shared_ptr<const Backend> backend, const std::string& key,
                                          std::uint32_t magic, std::uint64_t size_bytes) {
  std::vector<std::byte> begin(std::min(size_bytes, magic == kDeltaMagic ? kFirstOfDeltaBytes : kFirstBytes));
  backend->read(key, 0, begin);
  const std::string name = backend->url() + ": object " + key;
  Decoder preamble(begin, name);
  if (size_bytes < kPreambleBytes + 2 * kSumBytes) preamble.fail("ends at byte " + std::to_string(size_bytes));
  if (preamble.number<std::uint32_t>() != magic || !is_in_parts(preamble.number<std::uint16_t>())) return nullptr;
  preamble.number<std::uint16_t>();
  const auto root_bytes = preamble.number<std::uint64_t>();
  const std::uint64_t most_bytes = size_bytes - kPreambleBytes - 2 * kSumBytes;
  if (root_bytes > most_bytes) preamble.fail("has a root of " + std::to_string(root_bytes) + " bytes");
  const std::uint64_t blocks_at = kPreambleBytes + root_bytes + kSumBytes;
  if (const std::uint64_t known_bytes = begin.size(); blocks_at > known_bytes) {
    begin.resize(blocks_at);
    backend->read(key, known_bytes, Bytes(begin).subspan(known_bytes));
  }
  Decoder decoder(unseal(ConstBytes(begin).first(blocks_at), name), name);
  Root root = read_root(decoder);
  if (root.blocks_bytes != most_bytes - root_bytes) {
    decoder.fail("has " + std::to_string(size_bytes) + " bytes; expected " +
                 std::to_string(blocks_at + root.blocks_bytes + kSumBytes));
  }
  return std::make_shared<ObjectInParts>(std::move(backend), key, name, blocks_at, std::move(root), decoder);
}

class HeadOnly final : public StoredMap {
 public:
  explicit HeadOnly(MapHead head) : StoredMap(std::move(head)) {}
  void visit(std::uint64_t, std::uint64_t,
             const std::function<void(std::uint64_t, std::uint64_t, const Source*, std::uint64_t)>&) const override {
    throw Error(ErrorCode::internal, "a map of which only the head is known was read; report this");
  }
};

}  // namespace

std::shared_ptr<const StoredMap> StoredMap::open(std::shared_ptr<const Backend> backend, const std::string& key,
                                                 std::uint32_t magic) {
  const std::uint64_t size_bytes = backend->size_bytes(key);
  if (size_bytes <= kReadWholeBytes) return nullptr;
  return open_parts(std::move(backend), key, magic, size_bytes);
}

OpenedDelta open_delta(std::shared_ptr<const Backend> backend, const std::string& key) {
  const std::uint64_t size_bytes = backend->size_bytes(key);
  std::shared_ptr<ObjectInParts> delta = open_parts(backend, key, kDeltaMagic, size_bytes);
  if (!delta) throw Error(ErrorCode::corrupt, backend->url() + ": object " + key + " is no delta");
  OpenedDelta opened{delta->head(), size_bytes, {}};
  opened.over = [delta = std::move(delta)](VersionMap below) mutable -> std::shared_ptr<const StoredMap> {
    delta->lie_over(std::move(below));
    return std::move(delta);
  };
  return opened;
}

std::shared_ptr<const StoredMap> StoredMap::head_only(MapHead head) {
  return std::make_shared<const HeadOnly>(std::move(head));
}

}  // namespace penstock::store
