#include <array>

#include "collectives/choose/planners.hpp"
#include "collectives/cost/costs.hpp"

namespace penstock {
namespace collectives {

#define PENSTOCK_ALGORITHM(kind, name, fits, words, by, ...) \
  Plan kind##_##name(const Team& team, const Collective& collective);
#include "collectives/algorithms.def"
#undef PENSTOCK_ALGORITHM

#define PENSTOCK_CALL(planner, ...) planner(algorithm, team, collective __VA_OPT__(, ) __VA_ARGS__)
#define PENSTOCK_ALGORITHM(kind, name, fits, words, by, ...)                      \
  __VA_OPT__(Plan kind##_##name(const Team& team, const Collective& collective) { \
    const std::string algorithm = #kind "/" #name;                                \
    return PENSTOCK_CALL(__VA_ARGS__);                                            \
  })
#include "collectives/algorithms.def"
#undef PENSTOCK_ALGORITHM
#undef PENSTOCK_CALL

}  // namespace collectives

namespace {

constexpr std::array kAlgorithms = {
#define PENSTOCK_ROW(kind, name, fits, words, by, keeps_order, reproducible)                                  \
  Algorithm{CollectiveKind::kind,                                                                             \
            #name,                                                                                            \
            words,                                                                                            \
            &collectives::fits,                                                                               \
            &collectives::kind##_##name,                                                                      \
            keeps_order,                                                                                      \
            reproducible,                                                                                     \
            [](const Team& team, const Collective& collective, const Machine& machine, double most_seconds) { \
              return collectives::cost::by<double>({#name, team, collective, machine, most_seconds});         \
            },                                                                                                \
            [](const Team& team, const Collective& collective, const Machine& machine) {                      \
              return collectives::cost::by<Cost>({#name, team, collective, machine});                         \
            }},
#define PENSTOCK_ALGORITHM(kind, name, fits, words, by, ...) PENSTOCK_ROW(kind, name, fits, words, by, false, false)
#define PENSTOCK_ALGORITHM_IN_ORDER(kind, name, fits, words, by, ...) \
  PENSTOCK_ROW(kind, name, fits, words, by, true, false)
#define PENSTOCK_ALGORITHM_REPRODUCIBLE(kind, name, fits, words, by, ...) \
  PENSTOCK_ROW(kind, name, fits, words, by, false, true)
#define PENSTOCK_ALGORITHM_FIXED(kind, name, fits, words, by, ...) PENSTOCK_ROW(kind, name, fits, words, by, true, true)
#include "collectives/algorithms.def"
#undef PENSTOCK_ALGORITHM
#undef PENSTOCK_ROW
};

}  // namespace

std::span<const Algorithm> algorithms() noexcept { return kAlgorithms; }

}  // namespace penstock
