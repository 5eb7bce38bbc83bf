#include "pool/allocation_tracker.h"

#include <algorithm>

namespace symalloc {

void TagCount::Add(int64_t nbytes) {
  ++allocs;
  allocated += nbytes;
  left += nbytes;
  peak = std::max(peak, left);
}

void TagCount::Remove(int64_t nbytes, bool allocated_since) {
  ++frees;
  freed += nbytes;
  if (allocated_since) left -= nbytes;
}

void AllocationTracker::Allocated(const void* block, int64_t nbytes, std::string_view tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!noting()) return;
  for (auto& [_, scope] : scopes_) {
    scope.live += nbytes;
    scope.peak_live = std::max(scope.peak_live, scope.live);
  }
  try {
    Note(block, nbytes, tag);
  } catch (const std::bad_alloc&) {
    Forget(block);
  }
}

void AllocationTracker::Forget(const void* block) {
  recording_of_.dropped += recording_;
  auto found = blocks_.find(block);
  if (found == blocks_.end()) return;
  if (!found->second.tag.empty()) --tagged_;
  blocks_.erase(found);
}

void AllocationTracker::Note(const void* block, int64_t nbytes, std::string_view tag) {
  Block& noted = blocks_[block] = Block{++numbers_, 0, nbytes, ""};
  if (recording_) {
    noted.recorded = ++recorded_;
    auto open = open_calls_.find(std::this_thread::get_id());
    int64_t call = open == open_calls_.end() || open->second.empty() ? 0 : open->second.back();
    Record(1, noted.recorded, nbytes, call);
  }
  if (!tag.empty()) SetTag(&noted, tag);
  for (auto& [_, scope] : scopes_) scope.tags[noted.tag].Add(nbytes);
}

void AllocationTracker::Tag(const void* block, int64_t nbytes, std::string_view tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = blocks_.find(block);
  if (found == blocks_.end()) found = blocks_.emplace(block, Block{0, 0, nbytes, ""}).first;
  Block& noted = found->second;
  for (auto& [_, scope] : scopes_) {
    if (noted.number < scope.begin || noted.tag == tag) continue;
    TagCount& after = scope.tags[std::string(tag)];
    TagCount& before = scope.tags[noted.tag];
    --before.allocs;
    before.allocated -= nbytes;
    before.left -= nbytes;
    after.Add(nbytes);
  }
  SetTag(&noted, tag);
  Settle();
}

void AllocationTracker::Freed(const void* block, int64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = blocks_.find(block);
  Block gone = found == blocks_.end() ? Block{0, 0, nbytes, ""} : std::move(found->second);
  if (found != blocks_.end()) blocks_.erase(found);
  if (recording_ && gone.recorded != 0) Record(0, gone.recorded, 0, 0);
  for (auto& [_, scope] : scopes_) {
    scope.live -= nbytes;
    try {
      scope.tags[gone.tag].Remove(nbytes, gone.number >= scope.begin);
    } catch (const std::bad_alloc&) {
      // the block is freed all the same
    }
  }
  if (!gone.tag.empty()) --tagged_;
  Settle();
}

void AllocationTracker::StartRecording(int64_t most) {
  std::lock_guard<std::mutex> lock(mutex_);
  most_ = static_cast<size_t>(most);
  recording_of_ = Recording{};
  for (auto& [_, block] : blocks_) block.recorded = 0;
  open_calls_.clear();
  recorded_ = calls_ = 0;
  begun_ = std::chrono::steady_clock::now();
  recording_ = true;
  Settle();
}

void AllocationTracker::StopRecording() {
  std::lock_guard<std::mutex> lock(mutex_);
  recording_ = false;
  Settle();
}

Recording AllocationTracker::Recorded() {
  std::lock_guard<std::mutex> lock(mutex_);
  return recording_of_;
}

int64_t AllocationTracker::BeginCall() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!recording_) return 0;
  open_calls_[std::this_thread::get_id()].push_back(++calls_);
  Record(2, calls_, 0, 0);
  return calls_;
}

void AllocationTracker::EndCall(int64_t call) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int64_t>& open = open_calls_[std::this_thread::get_id()];
  auto found = std::find(open.begin(), open.end(), call);
  if (!recording_ || found == open.end()) return;
  open.erase(found);
  Record(3, call, 0, 0);
}

int64_t AllocationTracker::OpenScope(int64_t live) {
  std::lock_guard<std::mutex> lock(mutex_);
  scopes_[next_scope_] = ScopeStatistics{numbers_ + 1, live, live, {}};
  Settle();
  return next_scope_++;
}

ScopeStatistics AllocationTracker::ReadScope(int64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = scopes_.find(id);
  return found == scopes_.end() ? ScopeStatistics{} : found->second;
}

void AllocationTracker::CloseScope(int64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  scopes_.erase(id);
  Settle();
}

std::vector<Tagged> AllocationTracker::AllTagged() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Tagged> all;
  for (const auto& [block, noted] : blocks_) {
    if (!noted.tag.empty()) all.push_back({block, noted.nbytes, noted.tag});
  }
  return all;
}

// Forgets blocks that nothing needs any longer: frees are not tracked while the flag is not set.
void AllocationTracker::Settle() {
  bool on = noting() || tagged_ > 0;
  if (!on) blocks_.clear();
  flags_.Set(QuickFlags::kTracking, on);
}

void AllocationTracker::Record(int64_t kind, int64_t block, int64_t nbytes, int64_t call) {
  auto since = std::chrono::steady_clock::now() - begun_;
  int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  try {
    recording_of_.events.push_back({kind, block, nbytes, call, ns});
  } catch (const std::bad_alloc&) {
    ++recording_of_.dropped;
    return;
  }
  if (recording_of_.events.size() <= most_) return;
  recording_of_.events.pop_front();
  ++recording_of_.dropped;
}

void AllocationTracker::SetTag(Block* block, std::string_view tag) {
  std::string fresh(tag);
  tagged_ += static_cast<int64_t>(!tag.empty()) - static_cast<int64_t>(!block->tag.empty());
  block->tag.swap(fresh);
  if (!recording_ || block->recorded == 0) return;
  recording_of_.tags.emplace_back(block->recorded, block->tag);
  if (recording_of_.tags.size() > most_) recording_of_.tags.pop_front();
}

}  // namespace symalloc
