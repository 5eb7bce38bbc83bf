// Serves a planned model on symalloc's pool, with TVM's runtime alone: no Python, no compiler.
//
//   serve model.so 64 7 128 512 33
//
// loads model.so, which make_model.py writes, and gives a pool 64 MiB.  Two threads, each with a machine of its own,
// run requests of 7, 128, 512 and 33 rows.  Each result is compared with the one on TVM's own allocator.
// Exit status: 0; 1 where a request was refused or a result differs; 2 for arguments that make no sense.
#include <symalloc/pool.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ffi = tvm::ffi;

namespace {

constexpr int kThreads = 2;
constexpr int64_t kWidth = 64;  // of the model's rows
constexpr int kTvmsOwn = 2;     // the type of TVM's pooled allocator
constexpr int64_t kMostMebibytes = int64_t{1} << 32;
constexpr int64_t kMostRows = int64_t{1} << 40;
constexpr DLDataType kFloat{kDLFloat, 32, 1};
constexpr DLDevice kCpu{kDLCPU, 0};

// Arguments that make no sense; the text says which.
struct Usage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Arguments {
  std::string library;
  int64_t mebibytes;
  std::vector<int64_t> rows;  // of each request
};

// A whole number from `least` to `most`.
int64_t Number(const char* text, int64_t least, int64_t most) {
  char* end;
  errno = 0;
  int64_t number = std::strtoll(text, &end, 10);
  if (end != text && *end == '\0' && errno == 0 && number >= least && number <= most) return number;
  throw Usage("`" + std::string(text) + "` is no whole number from " + std::to_string(least) + " to " +
              std::to_string(most));
}

Arguments Read(int count, char** given) {
  if (count < 4) throw Usage("expected LIBRARY MEBIBYTES ROWS...");
  Arguments arguments{given[1], Number(given[2], 1, kMostMebibytes), {}};
  for (int i = 3; i < count; ++i) arguments.rows.push_back(Number(given[i], 0, kMostRows));
  return arguments;
}

// Makes machines for the model in a library, on no device yet.
ffi::Function Load(const std::string& file) {
  try {
    // a name without a folder is looked for in the system's folders
    std::string path = file.find('/') == std::string::npos ? "./" + file : file;
    ffi::Optional<ffi::Function> load = ffi::Module::LoadFromFile(path)->GetFunction("vm_load_executable");
    if (load.has_value()) return *load;
  } catch (const ffi::Error& error) {
    throw Usage(file + " cannot be loaded: " + std::string(error.message()));
  }
  throw Usage(file + " holds no Relax module");
}

// `rows` rows of numbers that depend on their place alone.
void Fill(const ffi::Tensor& x, int64_t rows) {
  auto* data = static_cast<float*>(x.data_ptr());
  for (int64_t i = 0; i < rows * kWidth; ++i) data[i] = static_cast<float>(i * 37 % 101) / 101.0f - 0.5f;
}

// Memory beside the pool, for what the results are compared with.
struct Malloc {
  void AllocData(DLTensor* tensor) {
    size_t nbytes = (ffi::GetDataSize(*tensor) + 63) / 64 * 64;
    tensor->data = std::aligned_alloc(64, nbytes == 0 ? 64 : nbytes);
    if (tensor->data == nullptr) throw ffi::Error("MemoryError", "no memory is left", "");
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

bool Same(const ffi::Tensor& ours, const ffi::Tensor& theirs) {
  size_t nbytes = ffi::GetDataSize(*ours.GetDLTensorPtr());
  return nbytes == ffi::GetDataSize(*theirs.GetDLTensorPtr()) &&
         std::memcmp(ours.data_ptr(), theirs.data_ptr(), nbytes) == 0;
}

double Sum(const ffi::Tensor& tensor) {
  auto* data = static_cast<const float*>(tensor.data_ptr());
  double sum = 0;
  for (int64_t i = 0; i < tensor.numel(); ++i) sum += data[i];
  return sum;
}

// What is said of a request.
struct Answer {
  std::string text;
  bool good = false;
};

// One machine on the pool, and one on TVM's own allocator.
class Server {
 public:
  Server(const symalloc::Pool& pool, const ffi::Function& load) : pool_(pool) {
    auto machine = load().cast<ffi::Module>();
    pool_.Serve(machine);
    main_ = machine->GetFunction("main").value();
    auto other = load().cast<ffi::Module>();
    other->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, kTvmsOwn);
    other_main_ = other->GetFunction("main").value();
  }

  Answer Serve(int64_t rows, const std::string& name) {
    try {
      ffi::Tensor x = pool_.Empty({rows, kWidth}, kFloat, name);
      Fill(x, rows);
      auto result = main_(x).cast<ffi::Tensor>();
      ffi::Tensor copy = ffi::Tensor::FromNDAlloc(Malloc(), ffi::ShapeView({rows, kWidth}), kFloat, kCpu);
      Fill(copy, rows);
      bool same = Same(result, other_main_(copy).cast<ffi::Tensor>());
      const char* than = same ? "the same bits as on" : "DIFFERS from";
      return {"sum " + std::to_string(Sum(result)) + ", " + than + " TVM's allocator", same};
    } catch (const ffi::Error& error) {  // of a guard, or of the pool
      return {"refused: " + std::string(error.kind()) + ": " + std::string(error.message()), false};
    }
  }

 private:
  symalloc::Pool pool_;
  ffi::Function main_, other_main_;
};

// Serves all requests from kThreads threads; returns the answers in the order of the requests.
std::vector<Answer> ServeAll(const symalloc::Pool& pool, const ffi::Function& load, const std::vector<int64_t>& rows) {
  std::vector<Answer> answers(rows.size());
  std::vector<std::exception_ptr> failures(kThreads);
  auto work = [&](size_t thread) {
    try {
      Server server(pool, load);
      for (size_t i = thread; i < rows.size(); i += kThreads) {
        answers[i] = server.Serve(rows[i], "request " + std::to_string(i));
      }
    } catch (...) {
      failures[thread] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return answers;
}

// Returns false where a request was refused, or a result differs.
bool Run(const Arguments& arguments) {
  ffi::Function load = Load(arguments.library);
  symalloc::PoolOptions options;
  options.limit = arguments.mebibytes << 20;
  symalloc::Pool pool(options);
  std::vector<Answer> answers = ServeAll(pool, load, arguments.rows);
  bool good = true;
  for (size_t i = 0; i < answers.size(); ++i) {
    std::cout << arguments.rows[i] << " rows: " << answers[i].text << "\n";
    good = good && answers[i].good;
  }
  symalloc::PoolStatistics now = pool.Statistics();
  std::cout << "pool: " << now.peak_reserved << " of " << now.limit << " bytes reserved at most, " << now.allocations
            << " allocations, " << now.refused << " refused, " << now.live << " bytes live\n";
  return good;
}

}  // namespace

int main(int count, char** given) {
  try {
    return Run(Read(count, given)) ? 0 : 1;
  } catch (const ffi::Error& error) {
    std::cerr << "serve: " << error.kind() << ": " << error.message() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "serve: " << error.what() << "\n";
  }
  return 2;
}
