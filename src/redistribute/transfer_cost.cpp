#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "penstock/error.hpp"
#include "penstock/relabel.hpp"

namespace penstock {
namespace {

/// n of an n*n matrix. Throws unless both matrices are square and of equal size.
std::size_t side_of(const char* function, const std::vector<double>& latency, const std::vector<double>& per_byte) {
  const auto n = static_cast<std::size_t>(std::llround(std::sqrt(static_cast<double>(latency.size()))));
  if (n * n != latency.size() || latency.size() != per_byte.size())
    throw Error(ErrorCode::invalid_argument, std::string(function) + ": " + std::to_string(latency.size()) +
                                                 " latencies and " + std::to_string(per_byte.size()) +
                                                 " costs per byte given; expected two square matrices of one size");
  return n;
}

}  // namespace

void TransferCost::append(PartCost term, std::size_t ranks) {
  if (ranks != 0 && ranks_ != 0 && ranks != static_cast<std::size_t>(ranks_))
    throw Error(ErrorCode::invalid_argument, "with_transformation: the cost is for " + std::to_string(ranks_) +
                                                 " ranks, and per_byte has " + std::to_string(ranks) +
                                                 " entries; expected one per rank");
  if (ranks != 0) ranks_ = static_cast<std::int32_t>(ranks);
  terms_.push_back(std::make_shared<const PartCost>(std::move(term)));
}

TransferCost TransferCost::pairs(std::vector<double> latency, std::vector<double> per_byte) {
  const std::size_t n = side_of("TransferCost::pairs", latency, per_byte);
  TransferCost cost;
  cost.append(
      [n, latency = std::move(latency), per_byte = std::move(per_byte)](std::span<const TransferPackage> packages,
                                                                        std::span<double> sums) {
        for (const TransferPackage& package : packages) {
          const std::size_t row = static_cast<std::size_t>(package.source) * n;
          const auto bytes = static_cast<double>(package.bytes);
          for (std::size_t r = 0; r < n; ++r) sums[r] += latency[row + r] + per_byte[row + r] * bytes;
        }
      },
      n);
  return cost;
}

TransferCost TransferCost::nodes(std::vector<std::int32_t> node_of_rank, std::vector<double> latency,
                                 std::vector<double> per_byte) {
  const std::size_t nodes = side_of("TransferCost::nodes", latency, per_byte);
  for (std::size_t r = 0; r < node_of_rank.size(); ++r)
    if (node_of_rank[r] < 0 || static_cast<std::size_t>(node_of_rank[r]) >= nodes)
      throw Error(ErrorCode::invalid_argument, "TransferCost::nodes: rank " + std::to_string(r) + " is on node " +
                                                   std::to_string(node_of_rank[r]) + "; expected 0 to " +
                                                   std::to_string(nodes) + " - 1");
  const std::size_t ranks = node_of_rank.size();
  TransferCost cost;
  cost.append(
      [nodes, node_of_rank = std::move(node_of_rank), latency = std::move(latency), per_byte = std::move(per_byte)](
          std::span<const TransferPackage> packages, std::span<double> sums) {
        const auto node = [&](std::size_t rank) { return static_cast<std::size_t>(node_of_rank[rank]); };
        const auto link = [&](std::size_t from, std::size_t to, double count, double bytes) {
          return latency[from * nodes + to] * count + per_byte[from * nodes + to] * bytes;
        };
        std::vector<double> count(nodes, 0);
        std::vector<double> bytes(nodes, 0);
        for (const TransferPackage& package : packages) {
          count[node(static_cast<std::size_t>(package.source))] += 1;
          bytes[node(static_cast<std::size_t>(package.source))] += static_cast<double>(package.bytes);
        }
        std::vector<double> to_node(nodes, 0);
        for (std::size_t from = 0; from < nodes; ++from)
          if (count[from] > 0)
            for (std::size_t to = 0; to < nodes; ++to) to_node[to] += link(from, to, count[from], bytes[from]);
        for (std::size_t r = 0; r < sums.size(); ++r) sums[r] += to_node[node(r)];
        for (const TransferPackage& package : packages) {  // data that stays on its rank is free
          const auto r = static_cast<std::size_t>(package.source);
          sums[r] -= link(node(r), node(r), 1, static_cast<double>(package.bytes));
        }
      },
      ranks);
  return cost;
}

TransferCost TransferCost::function(std::function<double(std::int32_t, std::int32_t, std::uint64_t)> given) {
  return parts([given = std::move(given)](std::span<const TransferPackage> packages, std::span<double> sums) {
    for (const TransferPackage& package : packages)
      for (std::size_t r = 0; r < sums.size(); ++r)
        sums[r] += given(package.source, static_cast<std::int32_t>(r), package.bytes);
  });
}

TransferCost TransferCost::parts(PartCost given) {
  TransferCost cost;
  cost.append(std::move(given), 0);
  return cost;
}

TransferCost TransferCost::with_transformation(std::vector<double> per_byte) const {
  TransferCost both = *this;
  // The volume alone has no term, so that it can be computed in integers.
  if (is_volume())
    both = parts([](std::span<const TransferPackage> packages, std::span<double> sums) {
      double bytes = 0;
      for (const TransferPackage& package : packages) bytes += static_cast<double>(package.bytes);
      for (double& sum : sums) sum += bytes;
      for (const TransferPackage& package : packages)
        sums[static_cast<std::size_t>(package.source)] -= static_cast<double>(package.bytes);
    });
  const std::size_t ranks = per_byte.size();
  both.append(
      [per_byte = std::move(per_byte)](std::span<const TransferPackage> packages, std::span<double> sums) {
        double bytes = 0;
        for (const TransferPackage& package : packages) bytes += static_cast<double>(package.bytes);
        for (std::size_t r = 0; r < sums.size(); ++r) sums[r] += per_byte[r] * bytes;
      },
      ranks);
  return both;
}

void TransferCost::add(std::span<const TransferPackage> packages, std::span<double> cost) const {
  for (const auto& term : terms_) (*term)(packages, cost);
}

}  // namespace penstock
