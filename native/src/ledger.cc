#include "ledger.h"

#include <algorithm>

namespace symalloc {

void Count::Add(int64_t nbytes) {
  ++allocs;
  allocated += nbytes;
  left += nbytes;
  peak = std::max(peak, left);
}

void Count::Remove(int64_t nbytes, bool allocated_since) {
  ++frees;
  freed += nbytes;
  if (allocated_since) left -= nbytes;
}

void Ledger::Allocated(const void* block, int64_t nbytes, bool escapes, std::string_view tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!noting()) return;
  Block& noted = blocks_[block] = Block{++numbers_, 0, nbytes, ""};
  if (recording_) {
    noted.recorded = ++recorded_;
    auto open = open_calls_.find(std::this_thread::get_id());
    int64_t call = open == open_calls_.end() || open->second.empty() ? 0 : open->second.back();
    Record(1, noted.recorded, nbytes, call, escapes);
  }
  if (!tag.empty()) SetTag(&noted, tag);
  for (auto& [_, tally] : tallies_) {
    tally.live += nbytes;
    tally.peak_live = std::max(tally.peak_live, tally.live);
    tally.tags[noted.tag].Add(nbytes);
  }
}

void Ledger::Tag(const void* block, int64_t nbytes, std::string_view tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = blocks_.find(block);
  if (found == blocks_.end()) found = blocks_.emplace(block, Block{0, 0, nbytes, ""}).first;
  Block& noted = found->second;
  for (auto& [_, tally] : tallies_) {
    if (noted.number < tally.begin || noted.tag == tag) continue;
    Count& before = tally.tags[noted.tag];
    --before.allocs;
    before.allocated -= nbytes;
    before.left -= nbytes;
    tally.tags[std::string(tag)].Add(nbytes);
  }
  SetTag(&noted, tag);
  Settle();
}

void Ledger::Freed(const void* block, int64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = blocks_.find(block);
  Block gone = found == blocks_.end() ? Block{0, 0, nbytes, ""} : std::move(found->second);
  if (found != blocks_.end()) blocks_.erase(found);
  if (recording_ && gone.recorded != 0) Record(0, gone.recorded, 0, 0, false);
  for (auto& [_, tally] : tallies_) {
    tally.live -= nbytes;
    tally.tags[gone.tag].Remove(nbytes, gone.number >= tally.begin);
  }
  if (!gone.tag.empty()) --tagged_;
  Settle();
}

void Ledger::StartRecording() {
  std::lock_guard<std::mutex> lock(mutex_);
  recording_of_ = Recording{};
  for (auto& [_, block] : blocks_) block.recorded = 0;
  open_calls_.clear();
  recorded_ = calls_ = 0;
  begun_ = std::chrono::steady_clock::now();
  recording_ = true;
  Settle();
}

void Ledger::StopRecording() {
  std::lock_guard<std::mutex> lock(mutex_);
  recording_ = false;
  Settle();
}

Recording Ledger::Recorded() {
  std::lock_guard<std::mutex> lock(mutex_);
  return recording_of_;
}

int64_t Ledger::BeginCall() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!recording_) return 0;
  open_calls_[std::this_thread::get_id()].push_back(++calls_);
  Record(2, calls_, 0, 0, false);
  return calls_;
}

void Ledger::EndCall(int64_t call) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int64_t>& open = open_calls_[std::this_thread::get_id()];
  auto found = std::find(open.begin(), open.end(), call);
  if (!recording_ || found == open.end()) return;
  open.erase(found);
  Record(3, call, 0, 0, false);
}

int64_t Ledger::OpenTally(int64_t live) {
  std::lock_guard<std::mutex> lock(mutex_);
  tallies_[next_tally_] = Tally{numbers_ + 1, live, live, {}};
  Settle();
  return next_tally_++;
}

Tally Ledger::ReadTally(int64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = tallies_.find(id);
  return found == tallies_.end() ? Tally{} : found->second;
}

Tally Ledger::CloseTally(int64_t id) {
  Tally closed = ReadTally(id);
  std::lock_guard<std::mutex> lock(mutex_);
  tallies_.erase(id);
  Settle();
  return closed;
}

std::vector<Tagged> Ledger::AllTagged() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Tagged> all;
  for (const auto& [block, noted] : blocks_) {
    if (!noted.tag.empty()) all.push_back({block, noted.nbytes, noted.tag});
  }
  return all;
}

// What nobody asks for any longer is forgotten: frees are not told while `on_` is false.
void Ledger::Settle() {
  bool on = noting() || tagged_ > 0;
  if (!on) blocks_.clear();
  on_.store(on, std::memory_order_relaxed);
}

void Ledger::Record(int64_t kind, int64_t block, int64_t nbytes, int64_t call, bool escapes) {
  auto since = std::chrono::steady_clock::now() - begun_;
  int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  recording_of_.events.push_back({kind, block, nbytes, call, ns, escapes});
}

void Ledger::SetTag(Block* block, std::string_view tag) {
  tagged_ += static_cast<int64_t>(!tag.empty()) - static_cast<int64_t>(!block->tag.empty());
  block->tag = tag;
  if (recording_ && block->recorded != 0) recording_of_.tags.emplace_back(block->recorded, block->tag);
}

}  // namespace symalloc
