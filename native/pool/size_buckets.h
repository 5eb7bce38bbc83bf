// Free intervals of small sizes by exact size.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "pool/ordered_search.h"
#include "pool/size_marks.h"
#include "pool/sizes.h"

namespace symalloc {

// The starts of a size that has had more than kMost of them are kept elsewhere, until there is none.  Sizes are multiples
// of kGrain up to kLargest.  All zero, it is empty: most of its memory is never touched.
class SizeBuckets {
 public:
  static constexpr int64_t kLargest = SizeMarks::kLargest;  // bytes
  static constexpr int64_t kMost = 512;

  // A size's starts, ascending.
  struct Bucket {
    int64_t* starts;
    int32_t count, room;
    bool elsewhere;  // the starts are not here, only their number
  };

  static SizeBuckets* Make() { return static_cast<SizeBuckets*>(std::calloc(1, sizeof(SizeBuckets))); }

  static void Destroy(SizeBuckets* buckets) {
    for (Bucket& each : buckets->buckets_) std::free(each.starts);
    std::free(buckets);
  }

  Bucket& of(int64_t size) { return buckets_[SizeMarks::Index(size)]; }
  const Bucket& of(int64_t size) const { return buckets_[SizeMarks::Index(size)]; }

  // False where so many starts more of a size, a few, are to be kept elsewhere, and so are those that are here.
  bool HasRoom(int64_t size, int more) {
    Bucket& bucket = of(size);
    return bucket.elsewhere || bucket.count + more <= bucket.room || Grow(&bucket);
  }

  // Notes one start more of a size; false where it is to be kept elsewhere.
  bool Insert(int64_t size, int64_t start) {
    Bucket& bucket = of(size);
    if (bucket.count++ == 0) sizes_.Mark(size);
    if (bucket.elsewhere) return false;
    int64_t at = CountNotAbove(bucket.starts, bucket.count - 1, start);
    std::memmove(bucket.starts + at + 1, bucket.starts + at, (bucket.count - 1 - at) * sizeof(int64_t));
    bucket.starts[at] = start;
    return true;
  }

  // Forgets a start that is there; false where it is kept elsewhere.
  bool Erase(int64_t size, int64_t start) {
    Bucket& bucket = of(size);
    bool here = !bucket.elsewhere;
    if (--bucket.count == 0) {
      sizes_.Unmark(size);
      bucket.elsewhere = false;
    } else if (here) {
      int64_t at = CountNotAbove(bucket.starts, bucket.count + 1, start) - 1;
      std::memmove(bucket.starts + at, bucket.starts + at + 1, (bucket.count - at) * sizeof(int64_t));
    }
    return here;
  }

  // The largest size of which there is any; 0: none.
  int64_t Largest() const { return sizes_.Largest(); }

  // The smallest size that is not below `size` and of which there is any; 0: none.
  int64_t Next(int64_t size) const { return sizes_.Next(size); }

 private:
  static bool Grow(Bucket* bucket) {
    if (bucket->room >= kMost) return false;
    int32_t room = bucket->room == 0 ? 8 : 2 * bucket->room;
    void* grown = std::realloc(bucket->starts, room * sizeof(int64_t));
    if (grown == nullptr) return false;
    bucket->starts = static_cast<int64_t*>(grown);
    bucket->room = room;
    return true;
  }

  SizeMarks sizes_;
  std::array<Bucket, SizeMarks::kCount> buckets_;
};

}  // namespace symalloc
