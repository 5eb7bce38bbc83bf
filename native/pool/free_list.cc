#include "pool/free_list.h"

#include <algorithm>

#include "pool/sizes.h"

namespace symalloc {

FreeList::FreeList(int64_t capacity) {
  chunks_.push_back(Chunk{0, 0, std::make_unique<Slots>()});
  InsertAfter(Place{0, -1}, 0, capacity);
}

int64_t FreeList::Find(int64_t nbytes, int64_t align) const {
  for (const Chunk& chunk : chunks_) {
    if (chunk.largest < nbytes) continue;
    const Slots& slots = *chunk.slots;
    for (int i = 0; i < slots.count; ++i) {
      if (slots.sizes[i] < nbytes) continue;
      int64_t offset = RoundUp(slots.starts[i], align);
      if (slots.starts[i] + slots.sizes[i] - offset >= nbytes) return offset;
    }
  }
  return kNone;
}

void FreeList::Take(int64_t offset, int64_t nbytes) {
  Place place = Before(offset);
  int64_t front = offset - start(place);
  int64_t rest = size(place) - front - nbytes;
  if (front == 0 && rest == 0) {
    Erase(place);
  } else if (front == 0) {
    start(place) += nbytes;
    size(place) = rest;
    Refresh(place.chunk);
  } else {
    size(place) = front;
    Refresh(place.chunk);
    if (rest > 0) InsertAfter(place, offset + nbytes, rest);
  }
}

bool FreeList::Overlaps(int64_t offset, int64_t nbytes) const {
  Place before = Before(offset);
  if (before.slot >= 0 && start(before) + size(before) > offset) return true;
  return Next(&before) && start(before) < offset + nbytes;
}

bool FreeList::Put(int64_t offset, int64_t nbytes) {
  Place before = Before(offset);
  Place after = before;
  bool has_before = before.slot >= 0;
  bool has_after = Next(&after);
  int64_t end = offset + nbytes;
  int64_t before_end = has_before ? start(before) + size(before) : -1;
  if (before_end > offset || (has_after && start(after) < end)) return false;
  bool joins_before = has_before && before_end == offset;
  bool joins_after = has_after && start(after) == end;
  if (joins_before) {
    size(before) += nbytes + (joins_after ? size(after) : 0);
    Refresh(before.chunk);
    if (joins_after) Erase(after);
  } else if (joins_after) {
    start(after) = offset;
    size(after) += nbytes;
    Refresh(after.chunk);
  } else {
    InsertAfter(before, offset, nbytes);
  }
  return true;
}

FreeList::Place FreeList::Before(int64_t offset) const {
  auto chunk = std::upper_bound(chunks_.begin(), chunks_.end(), offset,
                                [](int64_t value, const Chunk& c) { return value < c.first; });
  if (chunk == chunks_.begin()) return Place{0, -1};
  --chunk;
  const Slots& slots = *chunk->slots;
  auto slot = std::upper_bound(slots.starts.begin(), slots.starts.begin() + slots.count, offset);
  return Place{chunk - chunks_.begin(), static_cast<int>(slot - slots.starts.begin()) - 1};
}

bool FreeList::Next(Place* place) const {
  if (place->slot + 1 < chunks_[place->chunk].slots->count) {
    ++place->slot;
    return true;
  }
  if (place->chunk + 1 >= static_cast<int64_t>(chunks_.size())) return false;
  *place = Place{place->chunk + 1, 0};
  return true;
}

void FreeList::InsertAfter(Place place, int64_t start, int64_t size) {
  Slots* slots = chunks_[place.chunk].slots.get();
  if (slots->count == kSlots) {
    constexpr int kHalf = kSlots / 2;
    auto upper = std::make_unique<Slots>();
    upper->count = kSlots - kHalf;
    std::copy(slots->starts.begin() + kHalf, slots->starts.end(), upper->starts.begin());
    std::copy(slots->sizes.begin() + kHalf, slots->sizes.end(), upper->sizes.begin());
    slots->count = kHalf;
    chunks_.insert(chunks_.begin() + place.chunk + 1, Chunk{0, 0, std::move(upper)});
    Refresh(place.chunk);
    Refresh(place.chunk + 1);
    if (place.slot >= kHalf) place = Place{place.chunk + 1, place.slot - kHalf};
    slots = chunks_[place.chunk].slots.get();
  }
  int at = place.slot + 1;
  slots->Shift(at, at + 1);
  slots->starts[at] = start;
  slots->sizes[at] = size;
  Refresh(place.chunk);
}

void FreeList::Erase(Place place) {
  Slots* slots = chunks_[place.chunk].slots.get();
  slots->Shift(place.slot + 1, place.slot);
  if (slots->count == 0 && chunks_.size() > 1) {
    chunks_.erase(chunks_.begin() + place.chunk);
  } else {
    Refresh(place.chunk);
  }
}

void FreeList::Refresh(int64_t chunk) {
  const Slots& slots = *chunks_[chunk].slots;
  int64_t largest = 0;
  for (int i = 0; i < slots.count; ++i) largest = std::max(largest, slots.sizes[i]);
  chunks_[chunk].largest = largest;
  chunks_[chunk].first = slots.count ? slots.starts[0] : 0;
}

}  // namespace symalloc
