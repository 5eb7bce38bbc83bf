#include "pool/system_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <string>

#include "pool/os_memory.h"
#include "pool/sizes.h"

namespace symalloc {

namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t kAllAddresses = int64_t{1} << 46;  // half of what x86-64 and most aarch64 kernels give
constexpr int64_t kSpare = 64 << 20;
constexpr int64_t kMostBytes = int64_t{1} << 62;
constexpr int64_t kMostPage = int64_t{1} << 30;

std::atomic<int64_t> reserved_by_pools{0};

int64_t ResourceLimit(int which) {
  struct rlimit limit;
  if (getrlimit(static_cast<decltype(RLIMIT_AS)>(which), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kUnlimited;
  }
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimited));
}

// The number in a file of a control group; kUnlimited where there is none.
int64_t NumberIn(const std::string& file) {
  int64_t number;
  return std::ifstream(file) >> number && number > 0 ? number : kUnlimited;
}

// The least limit of a control group and those that it is in, `root` being the mounted hierarchy.  Inside a container
// the path may not be there; then the root is the container's own group.
int64_t GroupLimit(const std::string& root, std::string path, const char* file) {
  int64_t least = NumberIn(root + "/" + file);
  for (; path.size() > 1; path.erase(path.rfind('/'))) least = std::min(least, NumberIn(root + path + "/" + file));
  return least;
}

// Lines of /proc/self/cgroup: "0::/path" for version 2, "4:memory:/path" for version 1.
int64_t ControlGroupLimit() {
  int64_t least = kUnlimited;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, GroupLimit("/sys/fs/cgroup", path, "memory.max"));
    if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, GroupLimit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
    }
  }
  return least;
}

// Address space that the process has, in bytes.
int64_t AddressesUsed() {
  int64_t pages;
  return std::ifstream("/proc/self/statm") >> pages ? pages * SystemPage() : 0;
}

[[noreturn]] void Refuse(const std::string& text) { throw PoolUsage(text); }

void CheckSoftLimit(const Options& options) {
  int64_t numerator = options.soft_numerator, denominator = options.soft_denominator;
  if (numerator < -1 || denominator < 0) Refuse("the soft limit must not be negative");
  if (numerator > kMostBytes || denominator > kMostBytes) Refuse("the soft limit is more than 2^62 can express");
  if (numerator >= 0 && denominator > 0 && numerator < denominator) {
    Refuse("a soft limit below what is in use cannot be held");
  }
}

}  // namespace

int64_t SystemPage() {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  return page;
}

int64_t MemoryBound() {
  static const int64_t physical = sysconf(_SC_PHYS_PAGES) * SystemPage();
  return std::min({physical, ControlGroupLimit(), ResourceLimit(RLIMIT_DATA)});
}

int64_t AddressesLeft() {
  int64_t limit = ResourceLimit(RLIMIT_AS);
  int64_t left = limit == kUnlimited ? kUnlimited : limit - AddressesUsed();
  return std::max<int64_t>(std::min(left, kAllAddresses - reserved_by_pools.load()), 0);
}

void CountAddresses(int64_t nbytes) { reserved_by_pools += nbytes; }

int64_t RangeCapacity(const Options& options) {
  int64_t left = AddressesLeft();
  int64_t most = left / 8 * 3;
  int64_t wanted = options.capacity;
  if (wanted == 0) {
    int64_t bound = std::min(options.limit < 0 ? MemoryBound() : options.limit, kAllAddresses);
    int64_t ample = options.limit < 0 ? 4 * bound : 16 * bound + kSpare;
    // where addresses are scarce, twice the limit has to do
    int64_t scarce = options.limit < 0 ? std::max(left / 4, kSpare) : std::max(left / 256, 2 * bound);
    wanted = RoundUp(std::min(ample, scarce), std::max(options.page, kHugePage));
    if (options.limit < 0 && wanted > most) return 0;
  }
  return std::min(wanted, most) & -options.page;
}

Options Checked(Options options) {
  if (options.page < 4096 || options.page > kMostPage || (options.page & (options.page - 1)) != 0) {
    Refuse("the page size must be a power of two from 4096 bytes to 1 GiB, not " + std::to_string(options.page));
  }
  options.page = std::max(options.page, SystemPage());
  CheckSoftLimit(options);
  if (options.limit < -1 || options.limit > kMostBytes) {
    Refuse("the limit must be from 0 to 2^62 bytes, not " + std::to_string(options.limit));
  }
  int64_t unit = options.guard ? SystemPage() : options.page;
  if (options.limit >= 0 && options.limit < unit) {
    Refuse("a limit of " + std::to_string(options.limit) + " bytes holds no page: memory is backed in pages of " +
           std::to_string(unit) + " bytes");
  }
  if (options.bin_largest < 0 || options.bin_largest > kBinLargest) {
    Refuse("the largest block in a bin must be from 0 to 65536 bytes, not " + std::to_string(options.bin_largest));
  }
  if (options.bin_capacity < 0 || options.bin_capacity > kMostBytes / 4) {
    Refuse("what a thread caches must be from 0 to 2^60 bytes, not " + std::to_string(options.bin_capacity));
  }
  if (!(options.decay >= 0 && options.decay <= 1e9)) {
    Refuse("free pages decay after 0 to 10^9 seconds, not " + std::to_string(options.decay));
  }
  if (options.capacity < 0 || options.capacity > kAllAddresses || options.capacity % options.page != 0) {
    Refuse("the capacity of a range must be whole pages, up to 2^46 bytes, not " + std::to_string(options.capacity));
  }
  return options;
}

}  // namespace symalloc
