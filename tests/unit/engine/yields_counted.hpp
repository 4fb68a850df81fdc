// Counts the yields of a thread: sched_yield() is replaced in this program.
#pragma once

namespace penstock::engine {

/// How often the calling thread has yielded its core.
int count_yields() noexcept;

}  // namespace penstock::engine
