// The cores of this process for threads beside those that communicate and compute, such as loaders of data.
#pragma once

#include <pthread.h>

#include "host/cpu_placement.hpp"

namespace penstock::comm {

/// As it is now: neither the cores to which the other ranks of the job on this node are bound, nor those of progress
/// threads. Local, takes up to milliseconds.
host::SpareCores spare_cores();

/// Confines a thread to them. The thread that makes it may be bound to fewer, for example by OpenMP.
void confine(pthread_t thread, const host::SpareCores& cores);

}  // namespace penstock::comm
