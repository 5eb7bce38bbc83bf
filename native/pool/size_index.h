// Free intervals by size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "pool/size_buckets.h"
#include "pool/sorted_keys.h"

namespace symalloc {

// Pairs of a size and a start.  Where there are many, those of small sizes are found by their size alone.
class SizeIndex {
 public:
  using Key = SortedKeys::Key;

  void Insert(Key key) {
    if (++count_ > kMany && buckets_ == nullptr) UseBuckets();
    InsertAnywhere(key);
  }

  // Removes a key that is there.
  void Erase(Key key) {
    --count_;
    bool bucketed = buckets_ != nullptr && key.size <= SizeBuckets::kLargest;
    if (!bucketed || !buckets_->Erase(key.size, key.start)) keys_.Erase(key);
  }

  // Bytes of the largest interval; 0 where there is none.
  int64_t Largest() const {
    return std::max(keys_.Largest(), buckets_ == nullptr ? 0 : buckets_->Largest());
  }

  // Calls visit(key) for the keys of `size` bytes and more, ascending, until it returns false.
  template <typename Visit>
  void From(int64_t size, Visit visit) const {
    if (buckets_ == nullptr) return keys_.From(size, visit);
    while ((size = buckets_->Next(size)) != 0) {
      if (!VisitBucket(size, visit)) return;
      ++size;
    }
    keys_.From(SizeBuckets::kLargest + 1, visit);
  }

 private:
  static constexpr int64_t kMany = 256;

  template <typename Visit>
  bool VisitBucket(int64_t size, Visit& visit) const {
    const SizeBuckets::Bucket& bucket = buckets_->of(size);
    if (bucket.elsewhere) {
      bool more = true;
      keys_.From(size, [&](const Key& key) {
        if (key.size != size) return false;
        more = visit(key);
        return more;
      });
      return more;
    }
    for (int64_t i = 0; i < bucket.count; ++i) {
      if (!visit(Key{size, bucket.starts[i]})) return false;
    }
    return true;
  }

  void InsertAnywhere(Key key) {
    if (buckets_ == nullptr || key.size > SizeBuckets::kLargest) return keys_.Insert(key);
    if (!buckets_->HasRoom(key.size)) Leave(key.size);
    if (!buckets_->Insert(key.size, key.start)) keys_.Insert(key);
  }

  // Not where there is no memory for them.
  void UseBuckets() {
    buckets_.reset(SizeBuckets::Make());
    if (buckets_ == nullptr) return;
    SortedKeys all = std::move(keys_);
    keys_ = SortedKeys();
    all.From(0, [this](const Key& key) {
      InsertAnywhere(key);
      return true;
    });
  }

  // Moves a size's starts to the sorted keys.
  void Leave(int64_t size) {
    SizeBuckets::Bucket& bucket = buckets_->of(size);
    for (int64_t i = 0; i < bucket.count; ++i) keys_.Insert({size, bucket.starts[i]});
    bucket.elsewhere = true;
  }

  struct Destroyed {
    void operator()(SizeBuckets* buckets) const { SizeBuckets::Destroy(buckets); }
  };

  SortedKeys keys_;
  std::unique_ptr<SizeBuckets, Destroyed> buckets_;
  int64_t count_ = 0;
};

}  // namespace symalloc
