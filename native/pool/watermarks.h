// Callbacks at high and low watermarks of the bytes in use.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "pool/quick_flags.h"

namespace symalloc {

// A high watermark is due when the bytes in use rise to `at` or above, and again once they have fallen to `rearm` or
// below in between; a low watermark the other way round.
struct Watermark {
  int64_t id;
  bool high;
  int64_t at, rearm;  // bytes
  std::function<void(int64_t in_use)> callback;
  bool armed = false;
  bool running = false;  // due or called: its state stays as it is meanwhile
  bool due = false;
  bool removed = false;
};

// All but `due` is guarded by the pool's mutex.
class Watermarks {
 public:
  using List = std::vector<std::shared_ptr<Watermark>>;

  // `flags` outlives this.
  explicit Watermarks(QuickFlags* flags) : flags_(*flags) {}

  // The number of the new watermark; it is armed unless `in_use` is beyond it already.
  int64_t Add(Watermark watermark, int64_t in_use);

  // What is removed is to be destroyed without the mutex: callbacks may belong to a language with a lock of its
  // own, which others hold while they wait for the mutex.
  List Remove(int64_t id);
  List Clear();

  // To be called after every change of the bytes in use.
  void Note(int64_t in_use) {
    if (in_use >= above_ || in_use <= below_) Update(in_use);
  }

  bool due() const { return flags_.Has(QuickFlags::kDue); }

  // The watermarks that are to be called now, in the order that they were added in, without the mutex; `Done` for
  // each of them then.
  List Take();
  void Done(Watermark* watermark, int64_t in_use);

  // Makes a watermark that was taken due once more, in place of calling it.
  void Return(Watermark* watermark);

 private:
  void Update(int64_t in_use);
  void SetEdges();

  // no watermark changes its state while the bytes in use lie between
  int64_t above_ = std::numeric_limits<int64_t>::max();
  int64_t below_ = -1;
  int64_t next_id_ = 1;
  List watermarks_;  // in the order that they were added in
  QuickFlags& flags_;
};

}  // namespace symalloc
