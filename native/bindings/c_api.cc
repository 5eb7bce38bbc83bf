// The functions of symalloc/c_api.h: the pool without Python.
#include <symalloc/c_api.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "bindings/pool_object.h"
#include "bindings/pool_use.h"
#include "bindings/tensor_placement.h"
#include "bindings/vm_hook.h"

// What the caller holds; its release is the release of a user.
struct SymallocPool {
  symalloc::PoolRef pool;
  tvm::ffi::Module use;
};

struct SymallocSession {
  symalloc::PoolRef pool;
  std::shared_ptr<symalloc::Session> session;
};

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

using Unsafe = ffi::details::ObjectUnsafe;

constexpr int64_t kThousandths = 1000;
constexpr int64_t kMostRatio = int64_t{1} << 40;
constexpr double kMostSeconds = 1e9;

// Runs `body` for a caller that takes no exceptions.
template <typename Body>
int Run(Body body) {
  TVM_FFI_SAFE_CALL_BEGIN();
  Translated(body);
  TVM_FFI_SAFE_CALL_END();
}

// What the pointer argument `name` points to.
template <typename T>
T& Given(T* argument, const char* name) {
  if (argument == nullptr) throw PoolUsage(std::string("`") + name + "` is null");
  return *argument;
}

// The fields behind `nbytes` that both sides know.
template <typename Fields>
void Copy(const Fields& from, uint64_t known, Fields* to) {
  constexpr size_t kFirst = sizeof(from.nbytes);
  if (known < kFirst) throw PoolUsage("`nbytes` must be the size of the structure");
  std::memcpy(reinterpret_cast<char*>(to) + kFirst, reinterpret_cast<const char*>(&from) + kFirst,
              std::min<size_t>(known, sizeof(Fields)) - kFirst);
}

SymallocPoolOptions Defaults() {
  Options options;
  SymallocPoolOptions defaults{};
  defaults.limit = -1;
  defaults.soft_limit = -1;
  defaults.soft_ratio = static_cast<double>(options.soft_numerator) / static_cast<double>(options.soft_denominator);
  defaults.page = options.page;
  return defaults;
}

double Seconds(double value, const char* name) {
  if (value >= 0 && value <= kMostSeconds) return value;
  throw PoolUsage(std::string("`") + name + "` is a number of seconds from 0 to 10^9, not " + std::to_string(value));
}

// A number of bytes, or -1.
int64_t BytesOrNone(int64_t value, const char* name) {
  if (value >= -1) return value;
  throw PoolUsage(std::string("`") + name + "` is a number of bytes, or -1, not " + std::to_string(value));
}

void SetSoftLimit(const SymallocPoolOptions& given, Options* options) {
  if (BytesOrNone(given.soft_limit, "soft_limit") >= 0) {
    options->soft_numerator = given.soft_limit;
    options->soft_denominator = 0;
  } else if (given.soft_ratio == 0) {
    options->soft_numerator = -1;
    options->soft_denominator = 1;
  } else if (given.soft_ratio >= 1 && given.soft_ratio <= static_cast<double>(kMostRatio)) {
    options->soft_numerator = std::llround(given.soft_ratio * kThousandths);
    options->soft_denominator = kThousandths;
  } else {
    throw PoolUsage("`soft_ratio` is 0 or a ratio from 1 on, not " + std::to_string(given.soft_ratio));
  }
}

Options Read(const SymallocPoolOptions& given) {
  Options options;
  options.limit = BytesOrNone(given.limit, "limit");
  SetSoftLimit(given, &options);
  options.page = given.page;
  options.wait = static_cast<int64_t>(Seconds(given.wait, "wait") * 1e9);
  options.decay = Seconds(given.decay, "decay");
  options.guard = given.guard != 0;
  return options;
}

ffi::Module MachineOf(TVMFFIObjectHandle handle) {
  auto* object = static_cast<TVMFFIObject*>(handle);
  if (object != nullptr && object->type_index == TVMFFITypeIndex::kTVMFFIModule) {
    ffi::Module machine(Unsafe::ObjectPtrFromUnowned<ffi::ModuleObj>(object));
    if (machine->GetFunction("vm_initialization").has_value()) return machine;
  }
  throw PoolUsage("a pool serves a virtual machine, which `vm_load_executable` of an exported library returns");
}

// A storage from the machine's first device.  Throws where the machine is not initialized.
ffi::Any StorageOf(const ffi::Module& machine, int64_t nbytes) {
  void* context = const_cast<ffi::ModuleObj*>(machine.operator->());
  return ffi::Function::GetGlobalRequired("vm.builtin.alloc_storage")(context, ffi::Shape({nbytes}), 0,
                                                                      DLDataType{kDLUInt, 8, 1}, "global");
}

// A second initialization would leave the machine with the allocator of its first.
void RequireNew(const ffi::Module& machine) {
  try {
    StorageOf(machine, 1);
  } catch (const ffi::Error&) {
    return;
  }
  throw PoolUsage("the machine has an allocator: a pool serves one that `vm_load_executable` has just returned");
}

// Throws a HookError where the machine's storages are not as vm_layout.h says.  Its first device is cpu(0) on `pool`.
void TryMachine(const ffi::Module& machine, const PoolRef& pool) {
  constexpr int64_t kTried = 4096;  // bytes
  std::string fault = StorageFault(StorageOf(machine, kTried), pool->vm_type, kTried);
  if (!fault.empty()) throw ffi::Error("HookError", "this TVM takes a foreign allocator, but " + fault, "");
}

void Serve(const ffi::Module& machine, const PoolRef& pool) {
  int type = VmType(pool);
  RequireNew(machine);
  (*machine->GetFunction("vm_initialization"))(static_cast<int>(kDLCPU), 0, type);
  TryMachine(machine, pool);
  KeepPool(machine, pool);
}

SymallocPoolStatistics StatisticsOf(const PoolRef& pool) {
  Statistics now = pool->pool.statistics();
  SymallocPoolStatistics statistics{};
  statistics.limit = pool->pool.limit();
  statistics.live = now.live;
  statistics.used = now.used;
  statistics.peak_used = now.peak_used;
  statistics.reserved = now.reserved;
  statistics.peak_reserved = now.peak_reserved;
  statistics.allocations = now.allocs;
  statistics.frees = now.frees;
  statistics.refused = now.refused;
  return statistics;
}

SymallocSessionStatistics StatisticsOf(const SymallocSession& it) {
  SessionStatistics now = it.pool->pool.ReadSession(it.session.get());
  return {sizeof(SymallocSessionStatistics), now.limit, now.live, now.peak_live, now.allocs, now.frees, now.refused};
}

ffi::Tensor EmptyOf(const PoolRef& pool, ffi::ShapeView shape, DLDataType dtype, const char* tag) {
  if (Bytes(shape, dtype) < 0) {
    throw ffi::Error("BoundsError", "a tensor, " + Text(shape, dtype) +
                                        ", has a negative extent, or more bytes than 64 bits can count", "");
  }
  PooledData data{pool, tag == nullptr ? "" : tag, pool->owners.ns > 0 ? &pool->owners : nullptr};
  return ffi::Tensor::FromNDAlloc(data, shape, dtype, DLDevice{kDLCPU, 0});
}

}  // namespace

}  // namespace symalloc

using symalloc::Given;
using symalloc::Run;

int symalloc_pool_options(SymallocPoolOptions* options) {
  return Run([&] { symalloc::Copy(symalloc::Defaults(), Given(options, "options").nbytes, options); });
}

int symalloc_pool_create(const SymallocPoolOptions* options, SymallocPool** pool) {
  return Run([&] {
    SymallocPoolOptions given = symalloc::Defaults();
    symalloc::Copy(Given(options, "options"), options->nbytes, &given);
    symalloc::PoolRef made = symalloc::MakePool(symalloc::Read(given));
    Given(pool, "pool") = new SymallocPool{made, symalloc::PoolUse::Of(made)};
  });
}

void symalloc_pool_release(SymallocPool* pool) { delete pool; }

int symalloc_pool_serve(SymallocPool* pool, TVMFFIObjectHandle machine) {
  return Run([&] { symalloc::Serve(symalloc::MachineOf(machine), Given(pool, "pool").pool); });
}

int symalloc_pool_allocator_type(SymallocPool* pool, int32_t* type) {
  return Run([&] { Given(type, "type") = symalloc::VmType(Given(pool, "pool").pool); });
}

int symalloc_pool_keep(SymallocPool* pool, TVMFFIObjectHandle machine) {
  return Run([&] {
    const symalloc::PoolRef& kept = Given(pool, "pool").pool;
    if (kept->vm_type < 0) throw symalloc::PoolUsage("no machine was initialized with the allocator type of this pool");
    symalloc::KeepPool(symalloc::MachineOf(machine), kept);
  });
}

int symalloc_pool_empty(SymallocPool* pool, const int64_t* shape, int32_t ndim, DLDataType dtype, const char* tag,
                        TVMFFIObjectHandle* tensor) {
  return Run([&] {
    if (dtype.bits == 0 || dtype.lanes == 0) throw symalloc::PoolUsage("a dtype has bits and lanes, and neither is 0");
    if (ndim < 0 || (ndim > 0 && shape == nullptr)) throw symalloc::PoolUsage("a shape has no fewer than 0 extents");
    tvm::ffi::ShapeView extents(shape, static_cast<size_t>(ndim));
    tvm::ffi::Tensor made = symalloc::EmptyOf(Given(pool, "pool").pool, extents, dtype, tag);
    Given(tensor, "tensor") = symalloc::Unsafe::MoveObjectRefToTVMFFIObjectPtr(std::move(made));
  });
}

int symalloc_pool_trim(SymallocPool* pool, int64_t* freed) {
  return Run([&] { Given(freed, "freed") = Given(pool, "pool").pool->pool.Trim(); });
}

int symalloc_pool_statistics(SymallocPool* pool, SymallocPoolStatistics* statistics) {
  return Run([&] {
    SymallocPoolStatistics now = symalloc::StatisticsOf(Given(pool, "pool").pool);
    symalloc::Copy(now, Given(statistics, "statistics").nbytes, statistics);
  });
}

int symalloc_session_open(SymallocPool* pool, const char* name, int64_t limit, SymallocSession** session) {
  return Run([&] {
    symalloc::PoolRef owner = Given(pool, "pool").pool;
    if (Given(name, "name") == '\0') throw symalloc::PoolUsage("a session has a name, which errors show");
    auto made = owner->pool.OpenSession(name, symalloc::BytesOrNone(limit, "limit"));
    Given(session, "session") = new SymallocSession{owner, made};
  });
}

void symalloc_session_release(SymallocSession* session) { delete session; }

int symalloc_session_enter(SymallocSession* session) {
  return Run([&] { Given(session, "session").pool->pool.EnterSession(session->session); });
}

int symalloc_session_leave(SymallocSession* session) {
  return Run([&] { Given(session, "session").pool->pool.LeaveSession(session->session.get()); });
}

int symalloc_session_statistics(SymallocSession* session, SymallocSessionStatistics* statistics) {
  return Run([&] {
    SymallocSessionStatistics now = symalloc::StatisticsOf(Given(session, "session"));
    symalloc::Copy(now, Given(statistics, "statistics").nbytes, statistics);
  });
}
