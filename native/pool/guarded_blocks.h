// What the handler of faults knows of the blocks of all pools in guard mode: records that it reads without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace symalloc {

constexpr size_t kShownTag = 240;  // bytes of a tag that are kept, with the 0 behind them

// A block in guard mode, its protected pages included.
struct GuardedBlock {
  const char* mapped = nullptr;  // the first protected page
  const char* end = nullptr;     // of the second protected page
  const char* begin = nullptr;   // of the block itself
  const char* edge = nullptr;    // the second protected page
  int64_t nbytes = 0;
  bool freed = false;
};

// A block that any thread may read, a handler of signals too, while one changes it.
// A sequence lock (Lameter, 2002; Boehm, Can seqlocks get along with programming language memory models?, 2012).
class GuardRecord {
 public:
  // One thread at a time calls these.
  void Set(const GuardedBlock& block, std::string_view tag);
  void SetTag(std::string_view tag);
  void SetFreed();
  void Clear();

  // Copies the block and its tag, which ends with a 0, where `address` lies in it; false where it does not.  What
  // is being changed for long is copied as it is.
  bool Read(const char* address, GuardedBlock* block, char (&tag)[kShownTag]) const;

 private:
  static constexpr size_t kWords = kShownTag / sizeof(uint64_t);

  template <typename Change>
  void Write(Change change);
  void StoreTag(std::string_view tag);

  std::atomic<uint32_t> version_{0};  // odd: being changed
  std::atomic<const char*> mapped_{nullptr}, end_{nullptr}, begin_{nullptr}, edge_{nullptr};
  std::atomic<int64_t> nbytes_{0};
  std::atomic<bool> freed_{false};
  std::atomic<uint64_t> tag_[kWords]{};
};

// Many records of one owner.  It stays for as long as the process, and may have one owner after the other.
struct GuardRecords {
  static constexpr int kCount = 256;

  // Ones that nobody owns; nullptr where there is no memory for more.
  static GuardRecords* Claim();

  // Clears the records and leaves them to others.
  void Disown();

  std::atomic<bool> owned{true};
  GuardRecords* next = nullptr;  // never changed once it is in the list
  GuardRecord records[kCount];
};

// Finds the block that `address` lies in, as `GuardRecord::Read`.  Takes no lock and allocates nothing.
bool FindGuardedBlock(const char* address, GuardedBlock* block, char (&tag)[kShownTag]);

}  // namespace symalloc
