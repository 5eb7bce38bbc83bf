// Giving back what nobody needs any more: tests/pool/reference/decay.py is the reference.
#pragma once

#include <algorithm>
#include <cstdint>

namespace symalloc {

// How much free memory nobody has needed for a whole period: the least that was free at a time during the period.
class Decay {
 public:
  // 0: off.
  explicit Decay(double seconds) : seconds_(seconds) {}

  bool on() const { return seconds_ > 0; }
  double seconds() const { return seconds_; }

  // To be called after the bytes of wholly free pages became fewer.
  void Note(int64_t free) { least_ = std::min(least_, free); }

  // True where a period has ended, or the first one has not begun.
  bool Ended(double now) const { return !begun_ || now - since_ >= seconds_; }

  // The bytes to give back at the end of a period.
  int64_t Needless(int64_t free) const { return begun_ ? std::min(least_, free) : 0; }

  // Begins a period.
  void Begin(double now, int64_t free) {
    begun_ = true;
    since_ = now;
    least_ = free;
  }

 private:
  const double seconds_;
  bool begun_ = false;
  double since_ = 0;
  int64_t least_ = 0;
};

}  // namespace symalloc
