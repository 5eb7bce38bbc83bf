#include "bindings/pool_object.h"

#include <dlfcn.h>
#include <pthread.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "bindings/vm_hook.h"
#include "pool/out_of_memory_report.h"
#include "pool/system_limits.h"

namespace symalloc {

namespace {

// As Ctrl-C does: Python's main thread raises KeyboardInterrupt when it gets to run Python's code again.
void InterruptPython() {
  auto* interrupt = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "PyErr_SetInterrupt"));
  if (interrupt != nullptr) interrupt();
}

std::atomic<int64_t> main_thread{0};

// In a forked process its only thread.
bool IsMainThread() {
  return getpid() == gettid() || static_cast<int64_t>(pthread_self()) == main_thread.load(std::memory_order_relaxed);
}

bool PythonEnds() {
  static const auto ends = [] {
    void* found = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");  // from 3.13 on
    return reinterpret_cast<int (*)()>(found != nullptr ? found : dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
  }();
  return ends != nullptr && ends() != 0;
}

}  // namespace

void DeliverInterrupt(const tvm::ffi::Error& error) {
  auto deliver = tvm::ffi::Function::GetGlobal("symalloc.pool.deliver_interrupt");
  try {
    if (IsInterrupt(error) && deliver.has_value()) {
      bool interrupt = (*deliver)(tvm::ffi::String(error.message())).cast<bool>();
      if (interrupt) InterruptPython();
    } else {
      std::fprintf(stderr, "symalloc: %s\n", error.what());
    }
  } catch (const tvm::ffi::Error& failed) {  // Python is ending
    std::fprintf(stderr, "symalloc: %s\n", failed.what());
  }
}

PoolRef MakePool(Options options) {
  int64_t limit = options.limit;
  options.check_interrupts = CheckInterrupts;
  PoolRef pool(tvm::ffi::make_object<PoolObj>(Checked(options)));
  SetPoolLimit(pool, limit);
  return pool;
}

void SetPoolLimit(PoolRef pool, int64_t limit) {
  Pool& it = pool->pool;
  if (limit < 0) limit = std::max(std::min(MemoryBound(), it.capacity()) & -it.page(), it.page());
  it.SetLimit(limit);
}

void SetMainThread(int64_t thread) { main_thread = thread; }

// Other threads do not ask: no handler runs in them, and to take Python's lock may be their end.
void CheckInterrupts() {
  if (IsMainThread() && TVMFFIEnvCheckSignals() != 0) throw tvm::ffi::EnvErrorAlreadySet();
}

Lasting::~Lasting() {
  while (PythonEnds() && !IsMainThread()) pause();
}

PoolObj::~PoolObj() {
  if (vm_type >= 0) ReleaseVmType(vm_type);
}

void* PoolObj::Alloc(int64_t nbytes, int64_t align, std::string_view tag, const Patience* patience) {
  try {
    if (patience == nullptr) return pool.Alloc(nbytes, align, tag);
    return pool.AllocWaiting(nbytes, align, tag, *patience);
  } catch (const OverBudget&) {
    throw;
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.what() + MostHeld());
  }
}

void* PoolObj::Take(int64_t nbytes, int64_t align, std::string_view tag, const Patience* patience) {
  void* block = Alloc(nbytes, align, tag, patience);
  if (tag.empty()) return block;
  try {
    pool.Tag(block, nbytes, tag);
  } catch (const std::bad_alloc&) {
    pool.Free(block, nbytes);
    throw;
  }
  return block;
}

std::vector<Tagged> PoolObj::Holders() {
  std::map<const void*, Tagged> by_block;
  for (Held& held : handles.All()) by_block[held.block] = {held.block, held.nbytes, std::move(held.tag)};
  for (Tagged& tagged : pool.tracker().AllTagged()) by_block[tagged.block] = std::move(tagged);
  std::vector<Tagged> holders;
  for (auto& [_, tagged] : by_block) holders.push_back(std::move(tagged));
  return holders;
}

std::string PoolObj::MostHeld() {
  std::map<std::string, Holding> by_tag;
  Statistics now = pool.statistics();
  Holding others{now.live, now.allocs - now.frees};
  for (const Tagged& held : Holders()) {
    if (held.tag.empty()) continue;
    Holding& share = by_tag[held.tag];
    for (auto [to, sign] : {std::pair(&share, 1), std::pair(&others, -1)}) {
      to->nbytes += sign * held.nbytes;
      to->blocks += sign;
    }
  }
  by_tag[""] = others;
  return HeldText(by_tag);
}

}  // namespace symalloc
