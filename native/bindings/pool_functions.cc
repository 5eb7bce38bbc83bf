// The functions of the pool for tvm-ffi, under "symalloc.pool."; symalloc/native/functions.pyi has their types.
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include "bindings/pool_object.h"
#include "bindings/vm_hook.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

PoolRef Create(int64_t soft_numerator, int64_t soft_denominator, int64_t limit, int64_t page,
               int64_t bin_largest, int64_t bin_capacity, int64_t capacity, bool separate_escaping, bool huge, bool guard) {
  Options options;
  options.soft_numerator = soft_numerator;
  options.soft_denominator = soft_denominator;
  options.limit = limit;
  options.page = page;
  options.bin_largest = bin_largest;
  options.bin_capacity = bin_capacity;
  options.capacity = capacity;
  options.separate_escaping = separate_escaping;
  options.huge = huge;
  options.guard = guard;
  return Translated([&] { return PoolRef(ffi::make_object<PoolObj>(options)); });
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

int64_t Reserved(PoolRef pool) { return pool->pool.statistics().reserved; }

int64_t Trim(PoolRef pool) { return pool->pool.Trim(); }

// All damage that a pool in guard mode knows of, a line for each block; "" for others.
ffi::String Damage(PoolRef pool) {
  return pool->pool.guard() == nullptr ? "" : pool->pool.guard()->Damage();
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

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::ObjectDef<PoolObj>();
  ffi::reflection::GlobalDef()
      .def("symalloc.pool.create", Create)
      .def("symalloc.pool.retain", Retain)
      .def("symalloc.pool.address", Address)
      .def("symalloc.pool.pointer", Pointer)
      .def("symalloc.pool.reserved", Reserved)
      .def("symalloc.pool.trim", Trim)
      .def("symalloc.pool.damage", Damage)
      .def("symalloc.pool.statistics", StatisticsOf)
      .def("symalloc.pool.vm_type", VmType);
}

}  // namespace symalloc
