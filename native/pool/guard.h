// Guard mode: each block has pages of its own and ends in front of a protected one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pool/fresh_memory.h"
#include "pool/guarded_blocks.h"

namespace symalloc {

// A block's right edge is at a protected page where its size is a multiple of its alignment; else a few
// canaries stand between.  Canaries stand in front of it too, up to another protected page.  Fresh blocks
// are filled with 0xff, which is NaN in every floating type; large ones are mapped to such bytes, so that they take
// no memory until they are written.  Freed blocks are protected for a while.
// Thread-safe.
class Guard {
 public:
  Guard();
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Bytes of the pages that a block needs, protected ones not counted.
  static int64_t Backed(int64_t nbytes, int64_t align);

  // nullptr where the system has no more.
  void* Alloc(int64_t nbytes, int64_t align);

  // Protects the block; throws BadFree for what is none.  `*backed` becomes what `Backed` was for it.
  // Returns the damage that its canaries show, or "".
  std::string Free(void* block, int64_t* backed);

  // Says what the block is for.
  void Name(void* block, const std::string& tag);

  // Keeps damage that could not be reported, to be reported later.
  void Keep(const std::string& damage);

  // All damage: what was kept, and that of live blocks, a line for each; forgets what was kept.
  std::string Damage();

  // Returns the damage that was kept, and forgets it.
  std::string Kept();

  std::mutex* mutex() { return &mutex_; }

 private:
  struct Block {
    char* mapped;  // the first protected page
    char* body;    // the first page that may be written
    char* end;     // the second protected page
    int64_t total; // bytes of address space
    int64_t nbytes;
    GuardRecord* record;  // for the handler of faults
    bool freed = false;
    std::string tag;
  };
  using Blocks = std::map<char*, Block>;

  static std::string DamageOf(const char* begin, const Block& block);
  Blocks::iterator Find(char* address);
  char* Map(int64_t total);
  bool Note(char* begin, Block block);
  bool AddRecords();
  int File();
  void ForgetOldest();
  void Forget(Blocks::iterator forgotten);
  void Protect(const Block& block);

  std::mutex mutex_;
  Blocks blocks_;  // by their first byte; freed ones too, while they are protected
  std::deque<char*> freed_;
  int64_t freed_bytes_ = 0;  // of address space
  std::vector<GuardRecords*> records_;
  std::vector<GuardRecord*> unused_;  // of them
  std::string kept_;
  FreshFile file_;
};

}  // namespace symalloc
