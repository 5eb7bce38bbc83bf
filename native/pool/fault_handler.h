// Naming the block whose protected pages a program runs into.
#pragma once

namespace symalloc {

class Guard;

// Has faults in the pages of `guard` named on the standard error stream before the process goes the way it
// would have gone.  Beyond 256 at a time, guards are not watched.
void WatchFaults(Guard* guard);
void UnwatchFaults(Guard* guard);

}  // namespace symalloc
