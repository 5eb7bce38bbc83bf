// What Python and other users of tvm-ffi call of what stands around the pool: records, tallies, callbacks, limits.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pool_object.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

// Runs a callback of another language: what it throws becomes an error that names its kind.
template <typename Body>
auto Called(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const ffi::Error& error) {
    throw std::runtime_error(std::string(error.kind()) + ": " + std::string(error.message()));
  }
}

template <typename T>
ffi::Bytes AsBytes(const std::vector<T>& values) {
  return ffi::Bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// [tag, address of the block, bytes, …] of the blocks that handles or names are known of.
ffi::Array<ffi::Any> Holders(PoolRef pool) {
  ffi::Array<ffi::Any> holders;
  for (const Tagged& held : pool->Holders()) {
    holders.push_back(ffi::String(held.tag));
    holders.push_back(reinterpret_cast<int64_t>(held.block));
    holders.push_back(held.nbytes);
  }
  return holders;
}

void Record(PoolRef pool, bool on) {
  if (on) {
    pool->pool.ledger().StartRecording();
  } else {
    pool->pool.ledger().StopRecording();
  }
}

// Six int64 for each event, as Recording::Event; then block, tag, block, tag, …
ffi::Array<ffi::Any> Recorded(PoolRef pool) {
  Recording recording = pool->pool.ledger().Recorded();
  ffi::Array<ffi::Any> answer{AsBytes(recording.events)};
  for (const auto& [block, tag] : recording.tags) {
    answer.push_back(block);
    answer.push_back(ffi::String(tag));
  }
  return answer;
}

int64_t BeginCall(PoolRef pool) { return pool->pool.ledger().BeginCall(); }
void EndCall(PoolRef pool, int64_t call) { pool->pool.ledger().EndCall(call); }

int64_t OpenTally(PoolRef pool) { return pool->pool.OpenTally(); }
void CloseTally(PoolRef pool, int64_t id) { pool->pool.CloseTally(id); }

// live, peak live, peak used, peak reserved; then tag, allocs, allocated, frees, freed, left, peak, …
ffi::Array<ffi::Any> ReadTally(PoolRef pool, int64_t id) {
  auto [tally, peak] = pool->pool.ReadTally(id);
  ffi::Array<ffi::Any> answer{tally.live, tally.peak_live, peak.used, peak.reserved};
  for (const auto& [tag, count] : tally.tags) {
    answer.push_back(ffi::String(tag));
    for (int64_t value : {count.allocs, count.allocated, count.frees, count.freed, count.left, count.peak}) {
      answer.push_back(value);
    }
  }
  return answer;
}

void ResetPeak(PoolRef pool) { pool->pool.ResetPeak(); }

ffi::Bytes Layout(PoolRef pool) { return AsBytes(pool->pool.Layout()); }

int64_t Limit(PoolRef pool) { return pool->pool.limit(); }
void SetLimit(PoolRef pool, int64_t limit) { pool->pool.SetLimit(limit); }

int64_t AddWatch(PoolRef pool, bool high, int64_t at, int64_t rearm, ffi::Function callback) {
  Watch watch{0, high, at, rearm, [callback](int64_t in_use) { Called([&] { callback(in_use); }); }};
  return pool->pool.AddWatch(std::move(watch));
}
void RemoveWatch(PoolRef pool, int64_t id) { pool->pool.RemoveWatch(id); }

void OnOom(PoolRef pool, ffi::Function callback, int64_t retries) {
  auto ask = [callback](int64_t nbytes, int64_t tries, const std::string& why) {
    return Called([&] { return callback(nbytes, tries, ffi::String(why)).cast<bool>(); });
  };
  pool->pool.SetOnOom(ask, retries);
}
void ClearOnOom(PoolRef pool) { pool->pool.SetOnOom(nullptr, 0); }

void ClearCallbacks(PoolRef pool) { pool->pool.ClearCallbacks(); }

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("symalloc.pool.holders", Holders)
      .def("symalloc.pool.record", Record)
      .def("symalloc.pool.recorded", Recorded)
      .def("symalloc.pool.begin_call", BeginCall)
      .def("symalloc.pool.end_call", EndCall)
      .def("symalloc.pool.open_tally", OpenTally)
      .def("symalloc.pool.read_tally", ReadTally)
      .def("symalloc.pool.close_tally", CloseTally)
      .def("symalloc.pool.reset_peak", ResetPeak)
      .def("symalloc.pool.layout", Layout)
      .def("symalloc.pool.limit", Limit)
      .def("symalloc.pool.set_limit", SetLimit)
      .def("symalloc.pool.add_watch", AddWatch)
      .def("symalloc.pool.remove_watch", RemoveWatch)
      .def("symalloc.pool.on_oom", OnOom)
      .def("symalloc.pool.clear_on_oom", ClearOnOom)
      .def("symalloc.pool.clear_callbacks", ClearCallbacks);
}

}  // namespace symalloc
