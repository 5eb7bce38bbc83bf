// The handler of SIGSEGV in guard mode.
#pragma once

namespace symalloc {

constexpr unsigned char kCanary = 0xa5;

// Has faults in the pages of guarded blocks named on the standard error stream, from now on, before the process goes
// the way it would have gone.  To be called again from time to time: where another handler has been put on top, and
// taken away by restoring what was there before this one, this one is put back; where one stays on top, blocks are
// named in front of it.
void WatchFaults();

}  // namespace symalloc
