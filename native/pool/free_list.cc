#include "pool/free_list.h"

#include <algorithm>

#include "pool/ordered_search.h"
#include "pool/sizes.h"

namespace symalloc {

FreeList::FreeList(int64_t capacity) {
  chunks_.push_back(Chunk{0, std::make_unique<Slots>()});
  firsts_.push_back(0);
  Regroup(0);
  Prepare(capacity, 0, false);
  InsertAfter(Place{0, -1}, 0, capacity);
}

int64_t FreeList::Find(int64_t nbytes, int64_t align) const {
  if (nbytes > Largest()) return kNone;
  if (nbytes > kBestFit) return FindLowest(nbytes, align);
  int64_t found = kNone;
  by_size_.From(nbytes, [&](const SizeIndex::Key& key) {
    int64_t offset = RoundUp(key.start, align);
    if (key.start + key.size - offset >= nbytes) found = offset;
    return found == kNone;
  });
  return found;
}

int64_t FreeList::FindLowest(int64_t nbytes, int64_t align) const {
  int64_t count = static_cast<int64_t>(chunks_.size());
  for (int64_t at = 0; at < count; ++at) {
    if (at % kGroup == 0 && groups_[at / kGroup] < nbytes) {
      at += kGroup - 1;
      continue;
    }
    if (chunks_[at].largest < nbytes) continue;
    const Slots& slots = *chunks_[at].slots;
    for (int i = 0; i < slots.count; ++i) {
      if (slots.sizes[i] < nbytes) continue;
      int64_t offset = RoundUp(slots.starts[i], align);
      if (slots.starts[i] + slots.sizes[i] - offset >= nbytes) return offset;
    }
  }
  return kNone;
}

FreeList::Interval FreeList::Around(int64_t offset) const {
  Place place = Before(offset);
  if (place.slot < 0 || start(place) + size(place) <= offset) return {offset, offset};
  return {start(place), start(place) + size(place)};
}

void FreeList::Take(int64_t offset, int64_t nbytes) {
  Place place = Before(offset);
  int64_t front = offset - start(place);
  int64_t rest = size(place) - front - nbytes;
  Prepare(front, rest, true);
  if (front == 0 && rest == 0) {
    Erase(place);
  } else if (front == 0) {
    Change(place, offset + nbytes, rest);
  } else {
    Change(place, start(place), front);
    if (rest > 0) InsertAfter(place, offset + nbytes, rest);
  }
}

bool FreeList::Overlaps(int64_t offset, int64_t nbytes) const {
  Place before = Before(offset);
  if (before.slot >= 0 && start(before) + size(before) > offset) return true;
  return Next(&before) && start(before) < offset + nbytes;
}

bool FreeList::Put(int64_t offset, int64_t nbytes, Interval* merged) {
  Place before = Before(offset);
  Place after = before;
  bool has_before = before.slot >= 0;
  bool has_after = Next(&after);
  *merged = {offset, offset + nbytes};
  int64_t before_end = has_before ? start(before) + size(before) : -1;
  if (before_end > offset || (has_after && start(after) < merged->end)) return false;
  bool joins_before = has_before && before_end == offset;
  bool joins_after = has_after && start(after) == merged->end;
  if (joins_before) merged->start = start(before);
  if (joins_after) merged->end = start(after) + size(after);
  Prepare(merged->end - merged->start, 0, false);
  if (joins_before) {
    if (joins_after) Erase(after);
    Change(before, merged->start, merged->end - merged->start);
  } else if (joins_after) {
    Change(after, merged->start, merged->end - merged->start);
  } else {
    InsertAfter(before, offset, nbytes);
  }
  return true;
}

FreeList::Place FreeList::Before(int64_t offset) const {
  int64_t count = static_cast<int64_t>(firsts_.size());
  int64_t chunk = std::min(latest_, count - 1);
  if (offset < firsts_[chunk] || (chunk + 1 < count && offset >= firsts_[chunk + 1])) {
    chunk = CountNotAbove(firsts_.data(), count, offset) - 1;
    if (chunk < 0) return Place{0, -1};
    latest_ = chunk;
  }
  const Slots& slots = *chunks_[chunk].slots;
  return Place{chunk, static_cast<int>(CountNotAbove(slots.starts.data(), slots.count, offset)) - 1};
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

void FreeList::Previous(Place* place) const {
  if (--place->slot < 0 && place->chunk > 0) {
    --place->chunk;
    place->slot = chunks_[place->chunk].slots->count - 1;
  }
}

void FreeList::MakeRoom() {
  constexpr size_t kMore = 4;
  while (spare_.size() < kMore) spare_.push_back(std::make_unique<Slots>());
  if (size_t count = chunks_.size() + kMore; chunks_.capacity() < count) chunks_.reserve(2 * count);
  if (size_t count = firsts_.size() + kMore; firsts_.capacity() < count) firsts_.reserve(2 * count);
  if (size_t count = groups_.size() + kMore; groups_.capacity() < count) groups_.reserve(2 * count);
  ready_ = kMore;
}

// Makes room to insert behind `place`, in a chunk that is full, and returns it as it is then.  At the chunk's end the next
// one may have room: intervals that ascend or descend, all or all but one, fill the chunks.
FreeList::Place FreeList::MakePlace(Place place) {
  const int kept = place.slot >= kSlots - 2 ? place.slot + 1 : kSlots / 2;
  bool next_full = place.chunk + 1 == static_cast<int64_t>(chunks_.size()) || chunks_[place.chunk + 1].slots->count == kSlots;
  if (kept == kSlots / 2 || next_full) {
    Split(place.chunk, kept);
  } else if (kept < kSlots) {
    MoveLast(place.chunk);
  }
  return place.slot < kept && kept < kSlots ? place : Place{place.chunk + 1, place.slot - kept};
}

// Makes two chunks of one.
void FreeList::Split(int64_t chunk, int kept) {
  Slots& lower = *chunks_[chunk].slots;
  std::unique_ptr<Slots> upper = std::move(spare_.back());
  spare_.pop_back();
  --ready_;
  upper->count = kSlots - kept;
  std::copy(lower.starts.begin() + kept, lower.starts.end(), upper->starts.begin());
  std::copy(lower.sizes.begin() + kept, lower.sizes.end(), upper->sizes.begin());
  lower.count = kept;
  chunks_.insert(chunks_.begin() + chunk + 1, Chunk{0, std::move(upper)});
  firsts_.insert(firsts_.begin() + chunk + 1, 0);
  for (int64_t each : {chunk, chunk + 1}) SetFirst(each);
  Regroup(chunk);
}

// Moves the last interval of a chunk to the next one.
void FreeList::MoveLast(int64_t chunk) {
  Slots& lower = *chunks_[chunk].slots;
  Slots& upper = *chunks_[chunk + 1].slots;
  upper.Shift(0, 1);
  --lower.count;
  upper.starts[0] = lower.starts[lower.count];
  upper.sizes[0] = lower.sizes[lower.count];
  SetFirst(chunk + 1);
  if (upper.sizes[0] <= kBestFit) return;
  for (int64_t each : {chunk, chunk + 1}) Refresh(each);
}

void FreeList::InsertAfter(Place place, int64_t start, int64_t size) {
  if (chunks_[place.chunk].slots->count == kSlots) place = MakePlace(place);
  Slots* slots = chunks_[place.chunk].slots.get();
  int at = place.slot + 1;
  slots->Shift(at, at + 1);
  slots->starts[at] = start;
  slots->sizes[at] = size;
  SetFirst(place.chunk);
  if (size > kBestFit) Refresh(place.chunk);
  by_size_.Insert({size, start});
  ++count_;
}

void FreeList::Erase(Place place) {
  int64_t erased = size(place);
  by_size_.Erase({erased, start(place)});
  --count_;
  Slots* slots = chunks_[place.chunk].slots.get();
  slots->Shift(place.slot + 1, place.slot);
  if (slots->count == 0 && chunks_.size() > 1) {
    chunks_.erase(chunks_.begin() + place.chunk);
    firsts_.erase(firsts_.begin() + place.chunk);
    Regroup(place.chunk);
  } else {
    SetFirst(place.chunk);
    if (erased > kBestFit) Refresh(place.chunk);
  }
}

// Gives an interval another start and size, without passing another interval.
void FreeList::Change(Place place, int64_t start, int64_t size) {
  Slots& slots = *chunks_[place.chunk].slots;
  int64_t before = slots.sizes[place.slot];
  by_size_.Erase({before, slots.starts[place.slot]});
  slots.starts[place.slot] = start;
  slots.sizes[place.slot] = size;
  SetFirst(place.chunk);
  if (std::max(before, size) > kBestFit) Refresh(place.chunk);
  by_size_.Insert({size, start});
}

void FreeList::Refresh(int64_t chunk) {
  const Slots& slots = *chunks_[chunk].slots;
  int64_t largest = 0;
  for (int i = 0; i < slots.count; ++i) largest = std::max(largest, slots.sizes[i]);
  if (largest <= kBestFit) largest = 0;
  int64_t before = chunks_[chunk].largest;
  chunks_[chunk].largest = largest;
  int64_t& group = groups_[chunk / kGroup];
  if (largest >= group) {
    group = largest;
  } else if (before == group) {
    int64_t from = chunk / kGroup * kGroup;
    int64_t to = std::min(from + kGroup, static_cast<int64_t>(chunks_.size()));
    group = 0;
    for (int64_t i = from; i < to; ++i) group = std::max(group, chunks_[i].largest);
  }
}

// After chunks from `chunk` on have come, gone or moved.
void FreeList::Regroup(int64_t chunk) {
  int64_t count = static_cast<int64_t>(chunks_.size());
  groups_.resize((count + kGroup - 1) / kGroup);
  std::fill(groups_.begin() + std::min<int64_t>(chunk / kGroup, groups_.size()), groups_.end(), 0);
  int64_t changed = std::min(chunk + 2, count);
  for (int64_t i = chunk / kGroup * kGroup; i < count; ++i) {
    if (i >= changed || i < chunk) groups_[i / kGroup] = std::max(groups_[i / kGroup], chunks_[i].largest);
  }
  for (int64_t i = chunk; i < changed; ++i) Refresh(i);
}

}  // namespace symalloc
