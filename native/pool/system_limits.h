// What the system lets this process have.
#pragma once

#include <cstdint>

#include "pool/options.h"

namespace symalloc {

// Bytes of a page of the operating system.
int64_t SystemPage();

// The bytes of memory that the process can have at most: those of the machine, of its control group (versions 1 and 2),
// and of RLIMIT_DATA.
int64_t MemoryBound();

// The bytes of address space that may still be reserved: what RLIMIT_AS leaves, or, without it, half of what x86-64
// gives a process, less what pools have reserved.
int64_t AddressesLeft();

// To be told of what pools reserve, and (negative) release.
void CountAddresses(int64_t nbytes);

// The address space for each range of a pool, whole pages: what the options want, yet for the whole pool less than half
// of what is left.  Without an explicit capacity it is so much more than the limit, or than the memory that there is,
// that a fragmented pool finds room.
int64_t RangeCapacity(const Options& options);

// `options`, with what they leave open filled in, and pages of at least the system's; throws PoolUsage where they make
// no sense.
Options Checked(Options options);

}  // namespace symalloc
