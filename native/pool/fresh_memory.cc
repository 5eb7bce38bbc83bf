#include "pool/fresh_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "pool/sizes.h"

namespace symalloc {

namespace {

constexpr unsigned char kFresh = 0xff;
constexpr int64_t kPattern = int64_t{16} << 20;  // bytes
constexpr int64_t kMostMappings = 4096;          // for one block

bool FillFile(int file) {
  char bytes[1 << 12];
  std::memset(bytes, kFresh, sizeof bytes);
  for (int64_t at = 0; at < kPattern; at += sizeof bytes) {
    if (pwrite(file, bytes, sizeof bytes, at) != static_cast<ssize_t>(sizeof bytes)) return false;
  }
  return true;
}

bool MapPattern(int file, char* begin, int64_t nbytes) {
  int64_t most = std::min(nbytes, kPattern * kMostMappings);
  for (int64_t at = 0; at < most; at += kPattern) {
    int64_t size = std::min(kPattern, most - at);
    void* mapped = mmap(begin + at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0);
    if (mapped == MAP_FAILED) return false;
  }
  return true;
}

}  // namespace

FreshFile::~FreshFile() {
  if (IsMine()) close(file_);
}

int FreshFile::Get() {
  if (!IsMine()) Make();
  return file_;
}

bool FreshFile::IsMine() const {
  struct stat now;
  return file_ >= 0 && fstat(file_, &now) == 0 && now.st_dev == device_ && now.st_ino == number_;
}

void FreshFile::Make() {
  file_ = -1;
  int made = memfd_create("symalloc-fresh", MFD_CLOEXEC);
  struct stat now;
  if (made >= 0 && FillFile(made) && fstat(made, &now) == 0) {
    file_ = made;
    device_ = now.st_dev;
    number_ = now.st_ino;
  } else if (made >= 0) {
    close(made);
  }
}

bool FillFresh(char* begin, int64_t nbytes, int file) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  char* first = reinterpret_cast<char*>(RoundUp(reinterpret_cast<int64_t>(begin), page));
  int64_t whole = (begin + nbytes - first) / page * page;
  if (file < 0 || whole <= 0) {
    std::memset(begin, kFresh, nbytes);
    return true;
  }
  std::memset(begin, kFresh, first - begin);
  std::memset(first + whole, kFresh, begin + nbytes - (first + whole));
  return MapPattern(file, first, whole);
}

}  // namespace symalloc
