// The functions of the pool for tvm-ffi, under "symalloc.pool."; symalloc/native/native_functions.pyi has their types.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/pool_object.h"
#include "bindings/tensor_placement.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

// A method of the pool as a function of tvm-ffi, whose first argument is the pool.
template <typename Result, typename... Arguments>
auto Method(Result (Pool::*method)(Arguments...)) {
  return [method](PoolRef pool, Arguments... arguments) { return (pool->pool.*method)(arguments...); };
}

PoolRef Create(int64_t soft_numerator, int64_t soft_denominator, int64_t limit, int64_t page,
               int64_t bin_largest, int64_t bin_capacity, int64_t capacity, bool huge, bool guard, int64_t wait,
               double decay) {
  Options options{soft_numerator, soft_denominator, limit, page, bin_largest, bin_capacity, capacity,
                  huge, guard, wait, CheckInterrupts, decay};
  return Translated([&] { return MakePool(options); });
}

// capacity, page, limit
ffi::Array<int64_t> Granted(PoolRef pool) {
  return {pool->pool.capacity(), pool->pool.page(), pool->pool.limit()};
}

void Retain(PoolRef pool, int64_t handle) {
  Translated([&] { pool->handles.Retain(handle); });
}

int64_t Address(PoolRef pool, int64_t handle) {
  return Translated([&] { return pool->pool.Address(pool->handles.Get(handle).block); });
}

int64_t Pointer(PoolRef pool, int64_t handle) {
  return Translated([&] { return reinterpret_cast<int64_t>(pool->handles.Get(handle).block); });
}

// Bytes and tag of the block.
ffi::Array<ffi::Any> HeldBy(PoolRef pool, int64_t handle) {
  Held held = Translated([&] { return pool->handles.Get(handle); });
  return {held.nbytes, ffi::String(held.tag)};
}

// All damage that a pool in guard mode knows of, a line for each block; "" for others.
ffi::String Damage(PoolRef pool) {
  return pool->pool.guard() == nullptr ? "" : pool->pool.guard()->Damage();
}

// Stops after the part that passes the time.  Ctrl-C ends it, too; that is asked for now and then only, because the
// answer may wait for the lock of the interpreter.
int64_t Trim(PoolRef pool, double max_seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kAsked{100};
  Lasting lasting;
  const auto begin = Clock::now();
  auto asked = begin;
  return Translated([&] {
    return pool->pool.Trim([&] {
      auto now = Clock::now();
      if (now - asked > kAsked) {
        CheckInterrupts();
        asked = Clock::now();
      }
      return std::chrono::duration<double>(now - begin).count() <= max_seconds;
    });
  });
}

ffi::Map<ffi::String, int64_t> StatisticsOf(PoolRef pool) {
  Statistics s = pool->pool.statistics();
  return {{"live", s.live},
          {"allocs", s.allocs},
          {"frees", s.frees},
          {"used", s.used},
          {"peak_used", s.peak_used},
          {"reserved", s.reserved},
          {"peak_reserved", s.peak_reserved},
          {"refused", s.refused},
          {"commits", s.commits},
          {"committed", s.committed},
          {"decommits", s.decommits},
          {"decommitted", s.decommitted},
          {"threads", s.threads}};
}

// The functions that Python calls most have the pool bound to them: an argument less is quicker, and so are arguments
// that are there only where they say something.

constexpr int64_t kAlignment = 64;
constexpr int kMostAxes = 64;

void CheckCount(int32_t count, bool right, const char* wanted) {
  if (right) return;
  std::string text = "expected " + std::string(wanted) + ", not " + std::to_string(count) + " arguments";
  throw ffi::Error("TypeError", text, "");
}

[[noreturn]] void Misused(const std::string& text) { throw ffi::Error("PoolUsageError", text, ""); }

// `argument`, which must be an integer, and no bool.
int64_t Integer(const ffi::AnyView& argument, const char* name) {
  if (__builtin_expect(argument.type_index() == TVMFFITypeIndex::kTVMFFIInt, 1)) return argument.cast<int64_t>();
  std::string type = argument.GetTypeKey();
  if (argument.try_cast<ffi::String>()) type = "str";  // of which tvm-ffi has several
  Misused(std::string(name) + " is an integer" + (type == "ffi.BigInt" ? " within 64 bits" : ", not " + type));
}

int64_t ByteCount(const ffi::AnyView& argument) {
  int64_t nbytes = Integer(argument, "the number of bytes");
  if (nbytes < 0) Misused(std::to_string(nbytes) + " bytes cannot be allocated");
  return nbytes;
}

constexpr int64_t kMostAligned = int64_t{1} << 30;

int64_t Alignment(const ffi::AnyView& argument) {
  int64_t align = Integer(argument, "the alignment");
  if (align < 1 || (align & (align - 1)) != 0 || align > kMostAligned) {
    Misused("the alignment must be a power of two up to 2^30, not " + std::to_string(align));
  }
  return align;
}

// A handle; of (bytes) or (bytes, alignment, tag).
int64_t Alloc(const PoolRef& pool, const ffi::AnyView* arguments, int32_t count, const Patience* patience) {
  CheckCount(count, count == 1 || count == 3, "bytes, or bytes, alignment and tag");
  int64_t nbytes = ByteCount(arguments[0]);
  int64_t align = count == 1 ? kAlignment : Alignment(arguments[1]);
  std::string tag;
  if (count > 1) tag = arguments[2].cast<ffi::String>();
  return Translated([&] {
    void* block = pool->Alloc(nbytes, align, tag, patience);
    try {
      if (pool->pool.guard() != nullptr) pool->pool.guard()->Name(block, tag);
      return pool->handles.Add(block, nbytes, std::move(tag));
    } catch (const std::bad_alloc&) {
      pool->pool.Free(block, nbytes);
      throw;
    }
  });
}

// A tensor's memory without a tag, whose string would take a tenth of the time.
struct UntaggedData {
  PoolRef pool;
  const Patience* patience;

  void AllocData(DLTensor* tensor) {
    int64_t nbytes = static_cast<int64_t>(ffi::GetDataSize(*tensor));
    Translated([&] { tensor->data = pool->Alloc(nbytes, kAlignment, {}, patience); });
  }
  void FreeData(DLTensor* tensor) { FreeQuietly(&pool->pool, tensor->data, ffi::GetDataSize(*tensor)); }
};

// A tensor; of (dtype, extent, extent, …), or of those and a tag in the end.
ffi::Tensor Empty(const PoolRef& pool, const ffi::AnyView* arguments, int32_t count, const Patience* patience) {
  auto tag = count > 1 ? arguments[count - 1].as<ffi::String>() : std::nullopt;
  int32_t axes = count - (tag.has_value() ? 2 : 1);
  CheckCount(count, axes >= 0 && axes <= kMostAxes, "a dtype, at most 64 extents, perhaps a tag");
  std::array<int64_t, kMostAxes> extents;
  for (int32_t i = 0; i < axes; ++i) extents[i] = Integer(arguments[i + 1], "an extent");
  ffi::ShapeView shape(extents.data(), static_cast<size_t>(axes));
  auto dtype = arguments[0].cast<DLDataType>();
  if (Bytes(shape, dtype) < 0) {
    throw ffi::Error("BoundsError", "a tensor, " + Text(shape, dtype) +
                                        ", has a negative extent, or more bytes than 64 bits can count", "");
  }
  DLDevice cpu{kDLCPU, 0};
  if (!tag.has_value()) return ffi::Tensor::FromNDAlloc(UntaggedData{pool, patience}, shape, dtype, cpu);
  return ffi::Tensor::FromNDAlloc(PooledData{pool, *tag, patience}, shape, dtype, cpu);
}

template <auto body>
ffi::Function Bind(PoolRef pool) {
  if (pool->owners.ns == 0) {
    return ffi::Function::FromPacked([pool](const ffi::AnyView* arguments, int32_t count, ffi::Any* result) {
      *result = body(pool, arguments, count, nullptr);
    });
  }
  return ffi::Function::FromPacked([pool](const ffi::AnyView* arguments, int32_t count, ffi::Any* result) {
    Lasting lasting;
    *result = body(pool, arguments, count, &pool->owners);
  });
}

// The same, of pool, ns that it waits for memory, and the other arguments.
template <auto body>
void Waiting(const ffi::AnyView* arguments, int32_t count, ffi::Any* result) {
  CheckCount(count, count >= 2, "a pool, a time and more");
  auto pool = arguments[0].cast<PoolRef>();
  Patience patience{Integer(arguments[1], "the time to wait"), true};
  Lasting lasting;
  *result = body(pool, arguments + 2, count - 2, &patience);
}

ffi::Function BindFree(PoolRef pool) {
  return ffi::Function::FromTyped([pool](int64_t handle) {
    Translated([&] {
      Held gone;
      if (pool->handles.Release(handle, &gone)) pool->pool.Free(gone.block, gone.nbytes);
    });
  });
}

// Observing the pool.

// Runs a callback of another language: what it throws becomes an error that names its kind, but for what Python does not
// count as an error (symalloc/pool/native_pool.py).
template <typename Body>
auto Called(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const ffi::Error& error) {
    if (IsInterrupt(error)) throw;
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

// `most`: events that are kept; 0: nothing is recorded any more.
void Record(PoolRef pool, int64_t most) {
  if (most > 0) {
    pool->pool.tracker().StartRecording(most);
  } else {
    pool->pool.tracker().StopRecording();
  }
}

// Five int64 for each event, as Recording::Event; the events dropped; then block, tag, block, tag, …
ffi::Array<ffi::Any> Recorded(PoolRef pool) {
  Recording recording = pool->pool.tracker().Recorded();
  std::vector<Recording::Event> events(recording.events.begin(), recording.events.end());
  ffi::Array<ffi::Any> answer{AsBytes(events), recording.dropped};
  for (const auto& [block, tag] : recording.tags) {
    answer.push_back(block);
    answer.push_back(ffi::String(tag));
  }
  return answer;
}

int64_t BeginCall(PoolRef pool) { return pool->pool.tracker().BeginCall(); }
void EndCall(PoolRef pool, int64_t call) { pool->pool.tracker().EndCall(call); }

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

ffi::Bytes Layout(PoolRef pool) { return AsBytes(pool->pool.Layout()); }

int64_t AddWatermark(PoolRef pool, bool high, int64_t at, int64_t rearm, ffi::Function callback) {
  if (at < 0 || rearm < 0 || (high ? rearm >= at : rearm <= at)) {
    Misused("a watermark of " + std::to_string(at) + " bytes cannot rearm at " + std::to_string(rearm));
  }
  Watermark watermark{0, high, at, rearm, [callback](int64_t in_use) { Called([&] { callback(in_use); }); }};
  return pool->pool.AddWatermark(std::move(watermark));
}

void OnOom(PoolRef pool, ffi::Function callback, int64_t retries) {
  if (retries < 0) Misused("the number of retries must not be negative, as " + std::to_string(retries) + " is");
  auto ask = [callback](int64_t nbytes, int64_t tries, const std::string& why) {
    return Called([&] { return callback(nbytes, tries, ffi::String(why)).cast<bool>(); });
  };
  pool->pool.SetOnOom(ask, retries);
}
void ClearOnOom(PoolRef pool) { pool->pool.SetOnOom(nullptr, 0); }

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::ObjectDef<PoolObj>();
  ffi::reflection::GlobalDef()
      .def("symalloc.pool.set_main_thread", SetMainThread)
      .def("symalloc.pool.create", Create)
      .def("symalloc.pool.retain", Retain)
      .def("symalloc.pool.address", Address)
      .def("symalloc.pool.pointer", Pointer)
      .def("symalloc.pool.held", HeldBy)
      .def("symalloc.pool.trim", Trim)
      .def("symalloc.pool.decay_at", [](PoolRef pool, double now) { return pool->pool.DecayAt(now); })
      .def("symalloc.pool.damage", Damage)
      .def("symalloc.pool.statistics", StatisticsOf)
      .def("symalloc.pool.bind_alloc", Bind<Alloc>)
      .def("symalloc.pool.bind_free", BindFree)
      .def("symalloc.pool.bind_empty", Bind<Empty>)
      .def_packed("symalloc.pool.alloc_waiting", Waiting<Alloc>)
      .def_packed("symalloc.pool.empty_waiting", Waiting<Empty>)
      .def("symalloc.pool.end_waits", Method(&Pool::EndWaits))
      .def("symalloc.pool.holders", Holders)
      .def("symalloc.pool.record", Record)
      .def("symalloc.pool.recorded", Recorded)
      .def("symalloc.pool.begin_call", BeginCall)
      .def("symalloc.pool.end_call", EndCall)
      .def("symalloc.pool.open_scope", Method(&Pool::OpenScope))
      .def("symalloc.pool.read_scope", ReadScope)
      .def("symalloc.pool.close_scope", Method(&Pool::CloseScope))
      .def("symalloc.pool.reset_peak", Method(&Pool::ResetPeak))
      .def("symalloc.pool.layout", Layout)
      .def("symalloc.pool.limit", Method(&Pool::limit))
      .def("symalloc.pool.set_limit", SetPoolLimit)
      .def("symalloc.pool.granted", Granted)
      .def("symalloc.pool.add_watermark", AddWatermark)
      .def("symalloc.pool.remove_watermark", Method(&Pool::RemoveWatermark))
      .def("symalloc.pool.on_oom", OnOom)
      .def("symalloc.pool.clear_on_oom", ClearOnOom)
      .def("symalloc.pool.clear_callbacks", Method(&Pool::ClearCallbacks));
}

}  // namespace symalloc
