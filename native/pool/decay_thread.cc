#include "pool/decay_thread.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <thread>

#include "pool/pool.h"

namespace symalloc {

namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

DecayThread& DecayThread::Global() {
  static DecayThread* thread = new DecayThread();  // outlives every pool
  return *thread;
}

void DecayThread::Add(uint64_t id, Pool* pool, double seconds) {
  std::lock_guard<std::mutex> lock(mutex_);
  pools_[id] = Asked{pool, seconds, Now() + seconds};
  StartLocked();
  changed_.notify_all();
}

void DecayThread::Remove(uint64_t id) {
  std::unique_lock<std::mutex> lock(mutex_);
  pools_.erase(id);
  changed_.notify_all();
  while (asking_ == id) changed_.wait(lock);
}

void DecayThread::Start() {
  std::lock_guard<std::mutex> lock(mutex_);
  StartLocked();
}

// Without a thread, which the system may refuse, nothing decays until the next call.
void DecayThread::StartLocked() {
  if (running_.load() || pools_.empty()) return;
  sigset_t all, before;  // signals are for the program's threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this] { Run(); }).detach();
    running_ = true;
  } catch (const std::exception&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void DecayThread::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!pools_.empty()) {
    auto next = std::min_element(pools_.begin(), pools_.end(),
                                 [](auto& a, auto& b) { return a.second.at < b.second.at; });
    double wait = next->second.at - Now();
    if (wait <= 0) {
      Ask(&lock, next->first, &next->second);
    } else {
      changed_.wait_for(lock, std::chrono::duration<double>(wait));
    }
  }
  running_ = false;
}

void DecayThread::Ask(std::unique_lock<std::mutex>* lock, uint64_t id, Asked* asked) {
  Pool* pool = asked->pool;
  asked->at = Now() + asked->every;
  asking_ = id;
  lock->unlock();
  try {
    pool->DecayAt(Now(), [this, id] {
      std::lock_guard<std::mutex> here(mutex_);
      return pools_.count(id) != 0;
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "symalloc: giving back what nobody needs failed: %s\n", error.what());
  }
  lock->lock();
  asking_ = 0;
  changed_.notify_all();
}

void DecayThread::Inherit() {
  asking_ = 0;
  running_ = false;
  new (&changed_) std::condition_variable;  // which may not be destroyed while it knows of threads that wait
}

}  // namespace symalloc
