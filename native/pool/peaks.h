// The most bytes in use and backed at a time: of a pool, and within scopes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace symalloc {

// In bytes.
struct Peak {
  int64_t used = 0;
  int64_t reserved = 0;

  void Raise(const Peak& other) {
    used = std::max(used, other.used);
    reserved = std::max(reserved, other.reserved);
  }
};

// Guarded by the pool's mutex.  No decision depends on it.
class Peaks {
 public:
  void Note(const Peak& now) { recent_.Raise(now); }

  // Since the last reset.
  Peak peak() const {
    Peak peak = peak_;
    peak.Raise(recent_);
    return peak;
  }

  void Reset(const Peak& now) {
    Fold(now);
    peak_ = now;
  }

  void OpenScope(int64_t id, const Peak& now) {
    Fold(now);
    scopes_[id] = now;
  }

  // Since the scope was opened; nothing where it is closed.
  Peak ReadScope(int64_t id, const Peak& now) {
    Fold(now);
    auto found = scopes_.find(id);
    return found == scopes_.end() ? Peak{} : found->second;
  }

  void CloseScope(int64_t id) { scopes_.erase(id); }

 private:
  // Tells all who count of the most since they were last told.
  void Fold(const Peak& now) {
    peak_.Raise(recent_);
    for (auto& [_, peak] : scopes_) peak.Raise(recent_);
    recent_ = now;
  }

  Peak peak_;
  Peak recent_;  // since it was last folded
  std::map<int64_t, Peak> scopes_;
};

}  // namespace symalloc
