// The functions for tvm-ffi that observe a pool: recordings, scopes, callbacks, limits.
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

#include "bindings/pool_object.h"

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
    pool->pool.tracker().StartRecording();
  } else {
    pool->pool.tracker().StopRecording();
  }
}

// Six int64 for each event, as Recording::Event; then block, tag, block, tag, …
ffi::Array<ffi::Any> Recorded(PoolRef pool) {
  Recording recording = pool->pool.tracker().Recorded();
  ffi::Array<ffi::Any> answer{AsBytes(recording.events)};
  for (const auto& [block, tag] : recording.tags) {
    answer.push_back(block);
    answer.push_back(ffi::String(tag));
  }
  return answer;
}

int64_t BeginCall(PoolRef pool) { return pool->pool.tracker().BeginCall(); }
void EndCall(PoolRef pool, int64_t call) { pool->pool.tracker().EndCall(call); }

int64_t OpenScope(PoolRef pool) { return pool->pool.OpenScope(); }
void CloseScope(PoolRef pool, int64_t id) { pool->pool.CloseScope(id); }

// live, peak live, peak used, peak reserved; then tag, allocs, allocated, frees, freed, left, peak, …
ffi::Array<ffi::Any> ReadScope(PoolRef pool, int64_t id) {
  auto [scope, peak] = pool->pool.ReadScope(id);
  ffi::Array<ffi::Any> answer{scope.live, scope.peak_live, peak.used, peak.reserved};
  for (const auto& [tag, count] : scope.tags) {
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

int64_t AddWatermark(PoolRef pool, bool high, int64_t at, int64_t rearm, ffi::Function callback) {
  Watermark watermark{0, high, at, rearm, [callback](int64_t in_use) { Called([&] { callback(in_use); }); }};
  return pool->pool.AddWatermark(std::move(watermark));
}
void RemoveWatermark(PoolRef pool, int64_t id) { pool->pool.RemoveWatermark(id); }

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
      .def("symalloc.pool.open_scope", OpenScope)
      .def("symalloc.pool.read_scope", ReadScope)
      .def("symalloc.pool.close_scope", CloseScope)
      .def("symalloc.pool.reset_peak", ResetPeak)
      .def("symalloc.pool.layout", Layout)
      .def("symalloc.pool.limit", Limit)
      .def("symalloc.pool.set_limit", SetLimit)
      .def("symalloc.pool.add_watermark", AddWatermark)
      .def("symalloc.pool.remove_watermark", RemoveWatermark)
      .def("symalloc.pool.on_oom", OnOom)
      .def("symalloc.pool.clear_on_oom", ClearOnOom)
      .def("symalloc.pool.clear_callbacks", ClearCallbacks);
}

}  // namespace symalloc
