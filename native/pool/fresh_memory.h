// Fresh memory in guard mode: every byte is 0xff, which is NaN in every floating type.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace symalloc {

// A file in memory of nothing but fresh bytes, 16 MiB, made when it is asked for.
// A program that closes all files closes this one as well: then another is made.  Not thread-safe.
class FreshFile {
 public:
  FreshFile() = default;
  ~FreshFile();
  FreshFile(const FreshFile&) = delete;
  FreshFile& operator=(const FreshFile&) = delete;

  // -1 where the system has none.
  int Get();

 private:
  bool IsMine() const;
  void Make();

  int file_ = -1;
  dev_t device_ = 0;
  ino_t number_ = 0;
};

constexpr int64_t kFilled = 1 << 20;  // bytes below which filling memory is quicker than mapping it

// Makes the bytes [begin, begin + nbytes) of private memory 0xff.  `file`: a `FreshFile` that whole pages are mapped to,
// so that they take no memory of their own until they are written; -1: they are written here.  What would need more
// than 4,096 mappings, 64 GiB, reads as zero beyond.  False where the system takes no more mappings: then the memory
// is of no use, and can only be unmapped.
bool FillFresh(char* begin, int64_t nbytes, int file);

}  // namespace symalloc
