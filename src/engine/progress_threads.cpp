#include "engine/progress_threads.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "engine/progress.hpp"
#include "host/cpu_set.hpp"

namespace penstock::engine {

std::shared_ptr<const void> ProgressThreads::claim(std::vector<std::int32_t> cpus) {
  if (cpus.empty()) return nullptr;
  auto claim = std::make_unique<const Claim>(std::move(cpus));
  const Claim* const key = claim.get();
  const std::lock_guard lock(mutex_);
  claims_.push_back(std::move(claim));
  fit();
  return {key, [this](const Claim* ended) { end(ended); }};
}

void ProgressThreads::end(const Claim* claim) {
  if (Progress::in_forked_child()) return;
  std::vector<std::unique_ptr<Worker>> ended;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(claims_, [claim](const auto& held) { return held.get() == claim; });
    ended = fit();
  }
  if (ended.empty()) return;
  wake_();
  for (const auto& worker : ended) worker->thread.join();
}

std::vector<std::unique_ptr<ProgressThreads::Worker>> ProgressThreads::fit() {
  cpus_.clear();
  for (const auto& claim : claims_)
    if (claim->size() > cpus_.size()) cpus_ = *claim;
  std::vector<std::unique_ptr<Worker>> ended;
  while (workers_.size() > cpus_.size()) {
    workers_.back()->stop.store(true, std::memory_order_seq_cst);
    ended.push_back(std::move(workers_.back()));
    workers_.pop_back();
  }
  for (std::size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i]->cpu != cpus_[i]) place(*workers_[i], cpus_[i]);
  lacks_some_.store(workers_.size() < cpus_.size(), std::memory_order_relaxed);
  return ended;
}

void ProgressThreads::start_locked() {
  if (workers_.size() == cpus_.size()) return;
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals go to the application's threads
  try {
    workers_.reserve(cpus_.size());
    while (workers_.size() < cpus_.size()) {
      auto worker = std::make_unique<Worker>();
      worker->thread = std::thread([this, self = worker.get()] { loop_(*self); });
      ::pthread_setname_np(worker->thread.native_handle(), host::kWorkerName);
      workers_.push_back(std::move(worker));
      place(*workers_.back(), cpus_[workers_.size() - 1]);
    }
    lacks_some_.store(false, std::memory_order_relaxed);
  } catch (const std::exception&) {
    // No thread could be made. Other threads do its work, or progress happens in test and wait.
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ProgressThreads::place(Worker& worker, std::int32_t cpu) {
  // The starting thread may be bound to fewer CPUs than the process, for example by OpenMP.
  host::CpuSet cpus;
  cpus.add(cpu);
  worker.cpu = cpu;
  if (cpu < 0 || !host::bind_thread(worker.thread.native_handle(), cpus))
    host::bind_thread(worker.thread.native_handle(), host::cpus_of_process(::getpid()));
}

}  // namespace penstock::engine
