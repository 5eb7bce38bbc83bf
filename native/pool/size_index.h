// Free intervals by size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "pool/size_buckets.h"
#include "pool/sorted_keys.h"

namespace symalloc {

// Pairs of a size and a start.  Where there are many, those of small sizes are found by their size alone.
class SizeIndex {
 public:
  using Key = SortedKeys::Key;

  // Makes room for a key of each of two sizes, 0: of none, and one more with `undo`: to insert them cannot fail any more.
  void Prepare(int64_t size, int64_t other, bool undo) {
    if (count_ + 1 >= kMany && buckets_ == nullptr) UseBuckets();
    for (int64_t each : {size, other}) {
      if (buckets_ != nullptr && each > 0 && each <= SizeBuckets::kLargest) MakeRoom(each, 2);
    }
    keys_.Prepare(undo ? 3 : 1);
  }

  // It must have been prepared for.
  void Insert(Key key) {
    ++count_;
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
    if (!buckets_->Insert(key.size, key.start)) keys_.Insert(key);
  }

  // Not where there is no memory for them.
  void UseBuckets() {
    buckets_.reset(SizeBuckets::Make());
    if (buckets_ == nullptr) return;
    SortedKeys all = std::move(keys_);
    keys_ = SortedKeys();
    try {
      all.From(0, [this](const Key& key) {
        if (key.size <= SizeBuckets::kLargest) MakeRoom(key.size, 1);
        keys_.Prepare(1);
        InsertAnywhere(key);
        return true;
      });
    } catch (const std::bad_alloc&) {
      keys_ = std::move(all);
      buckets_ = nullptr;
    }
  }

  // For so many starts more of a size.
  void MakeRoom(int64_t size, int more) {
    if (!buckets_->HasRoom(size, more)) Leave(size);
  }

  // Moves a size's starts to the sorted keys.
  void Leave(int64_t size) {
    SizeBuckets::Bucket& bucket = buckets_->of(size);
    keys_.Prepare(bucket.count / (SortedKeys::kSlots / 2) + 4);
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
