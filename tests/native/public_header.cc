// What <symalloc/pool.h> promises, on machines for model.so.  Each line that is printed is a broken promise, but for
// the one that the program in docs/deployment.md prints.
#define main Documented
#include "documented.h"
#undef main

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <string>

namespace ffi = tvm::ffi;

namespace {

constexpr DLDataType kFloat{kDLFloat, 32, 1};
constexpr int64_t kWidth = 64;
int broken = 0;

void Expect(bool holds, const std::string& promise) {
  if (holds) return;
  std::cout << promise << "\n";
  ++broken;
}

// `body` throws an error of `kind` whose text has `words`.
void Refuses(const std::function<void()>& body, const std::string& kind, const std::string& words) {
  try {
    body();
    Expect(false, "nothing is thrown; expected " + kind + ": " + words);
  } catch (const ffi::Error& error) {
    std::string message(error.message());
    Expect(std::string(error.kind()) == kind && message.find(words) != std::string::npos,
           std::string(error.kind()) + ": " + message + "; expected " + kind + ": " + words);
  }
}

// Memory that is no pool's.
struct Malloc {
  void AllocData(DLTensor* tensor) {
    tensor->data = std::aligned_alloc(64, (ffi::GetDataSize(*tensor) + 63) / 64 * 64);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

ffi::Module Machine(const std::string& file) {
  return ffi::Module::LoadFromFile(file)->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
}

ffi::Tensor Call(const ffi::Module& machine, const ffi::Tensor& x) {
  return machine->GetFunction("main").value()(x).cast<ffi::Tensor>();
}

ffi::Tensor Zeros(symalloc::Pool* pool, int64_t rows) {
  ffi::Tensor x = pool->Empty({rows, kWidth}, kFloat, "zeros");
  std::memset(x.data_ptr(), 0, rows * kWidth * sizeof(float));
  return x;
}

void OptionsAreChecked() {
  auto with = [](auto field, auto value) {
    return [=] {
      symalloc::PoolOptions options;
      options.*field = value;
      symalloc::Pool pool(options);
    };
  };
  using Options = symalloc::PoolOptions;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Refuses(with(&Options::limit, -2), "PoolUsageError", "`limit` is a number of bytes, or -1, not -2");
  Refuses(with(&Options::limit, 100), "PoolUsageError", "holds no page");
  Refuses(with(&Options::soft_limit, -5), "PoolUsageError", "`soft_limit`");
  Refuses(with(&Options::soft_ratio, 0.5), "PoolUsageError", "`soft_ratio` is 0 or a ratio from 1 on");
  Refuses(with(&Options::soft_ratio, nan), "PoolUsageError", "`soft_ratio`");
  Refuses(with(&Options::page, 5000), "PoolUsageError", "power of two");
  Refuses(with(&Options::wait, -1), "PoolUsageError", "`wait` is a number of seconds");
  Refuses(with(&Options::decay, nan), "PoolUsageError", "`decay`");
  Refuses(with(&Options::nbytes, 0), "PoolUsageError", "`nbytes`");
}

void OptionsOfOlderProgramsAreTaken() {
  symalloc::PoolOptions options;
  options.limit = 1 << 20;
  options.page = 3;  // not known to the caller, who knows no field behind the limit
  options.nbytes = offsetof(SymallocPoolOptions, soft_limit);
  Expect(symalloc::Pool(options).Statistics().limit == 1 << 20, "fields behind `nbytes` are not read");
}

void BlocksComeAndGo() {
  symalloc::PoolOptions options;
  options.limit = 1 << 20;
  symalloc::Pool pool(options);
  {
    ffi::Tensor held = pool.Empty({1000, 4}, kFloat, "weights");
    Expect(pool.Statistics().live == 16000, "a tensor is live");
    Refuses([&] { pool.Empty({1 << 20}, kFloat); }, "OutOfMemoryError", "held: `weights` 16000 bytes in 1 block");
    Refuses([&] { pool.Empty({-1}, kFloat); }, "BoundsError", "negative extent");
    Expect(pool.Empty({}, kFloat).numel() == 1, "a scalar is a tensor");
    Refuses([&] { pool.Empty({4}, DLDataType{kDLFloat, 0, 1}); }, "PoolUsageError", "neither is 0");
    Refuses([&] { pool.Empty({4}, DLDataType{kDLFloat, 32, 0}); }, "PoolUsageError", "neither is 0");
  }
  symalloc::PoolStatistics now = pool.Statistics();
  Expect(now.live == 0 && now.refused == 1 && now.allocations == now.frees, "tensors return their memory");
  Expect(pool.Trim() > 0 && pool.Statistics().reserved == 0, "Trim gives all pages back");
}

void SessionsAreBudgets(const std::string& file) {
  symalloc::Pool pool;
  ffi::Module machine = Machine(file);
  pool.Serve(machine);
  ffi::Tensor x = Zeros(&pool, 5);
  symalloc::Session session(pool, "request 17", 4096), counting(pool, "all");
  std::optional<ffi::Tensor> y;
  {
    symalloc::Session::Scope within(session);
    y = pool.Empty({100}, kFloat);
    Refuses([&] { Call(machine, x); }, "OutOfMemoryError", "the session `request 17`");
    Refuses([&] { pool.Empty({1000}, kFloat); }, "OutOfMemoryError", "the session `request 17`");
  }
  Expect(session.Statistics().live == 400 && session.Statistics().refused == 2, "a session counts");
  y.reset();
  symalloc::SessionStatistics now = session.Statistics();
  Expect(now.live == 0 && now.peak_live >= 400 && now.peak_live <= now.limit, "until it is freed, wherever");
  {
    symalloc::Session::Scope within(counting);
    Call(machine, x);
  }
  Expect(counting.Statistics().allocations > 1, "what a machine allocates is charged");
  Expect(session.Statistics().allocations == now.allocations, "outside nothing is charged");
  Refuses([&] { symalloc::Session(pool, "none", -2); }, "PoolUsageError", "`limit` is a number of bytes, or -1");
  Refuses([&] { symalloc::Session(pool, ""); }, "PoolUsageError", "a session has a name");
}

void TensorsKeepTheirPool() {
  ffi::Tensor left = symalloc::Pool().Empty({4}, kFloat);
  static_cast<float*>(left.data_ptr())[3] = 1;
}

void MachinesKeepTheirPool(const std::string& file) {
  auto machine = Machine(file);
  auto pool = std::optional<symalloc::Pool>(symalloc::Pool());
  pool->Serve(machine);
  ffi::Tensor x = Zeros(&*pool, 5);
  ffi::Tensor y = Call(machine, x);
  Expect(pool->Statistics().live == 2 * 5 * kWidth * 4, "the argument and the result are live, and nothing else");
  pool.reset();
  Expect(Call(machine, x).size(0) == 5, "a machine keeps its pool");
}

void MachinesOnSeveralDevices(const std::string& file) {
  constexpr int kNaive = 1;
  ffi::Module other = Machine(file);
  auto pool = std::optional<symalloc::Pool>(symalloc::Pool());
  Refuses([&] { pool->Keep(other); }, "PoolUsageError", "initialized");
  {
    ffi::Module machine = Machine(file);
    for (const ffi::Module& each : {machine, other}) {
      each->GetFunction("vm_initialization").value()(int(kDLCPU), 0, pool->AllocatorType(), int(kDLCPU), 1, kNaive);
    }
    pool->Keep(machine);
    ffi::Tensor x = Zeros(&*pool, 5);
    Expect(Call(machine, x).size(0) == 5 && pool->Statistics().allocations > 1, "cpu(0) is on the pool");
    pool.reset();
    Expect(Call(machine, x).size(0) == 5, "a machine keeps the pool that it is told to");
  }
  ffi::Tensor x = ffi::Tensor::FromNDAlloc(Malloc(), ffi::ShapeView({5, kWidth}), kFloat, DLDevice{kDLCPU, 0});
  Refuses([&] { Call(other, x); }, "PoolUsageError", "the pool of this machine is gone");
}

void OnlyMachinesAreServed(const std::string& file) {
  symalloc::Pool pool;
  Refuses([&] { pool.Serve(ffi::Module::LoadFromFile(file)); }, "PoolUsageError", "vm_load_executable");
  ffi::Module gone = Machine(file);
  ffi::Module here = std::move(gone);
  Refuses([&] { pool.Serve(gone); }, "PoolUsageError", "vm_load_executable");
  symalloc::Pool().Serve(here);
  Refuses([&] { pool.Serve(here); }, "PoolUsageError", "the machine has an allocator");
}

}  // namespace

int main() {
  const std::string file = "./model.so";
  Expect(Documented() == 0, "the documented program serves");
  OptionsAreChecked();
  OptionsOfOlderProgramsAreTaken();
  BlocksComeAndGo();
  TensorsKeepTheirPool();
  MachinesKeepTheirPool(file);
  MachinesOnSeveralDevices(file);
  OnlyMachinesAreServed(file);
  SessionsAreBudgets(file);
  return broken == 0 ? 0 : 1;
}
