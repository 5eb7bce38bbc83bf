#include "bindings/pool_object.h"

#include <map>
#include <utility>

#include "bindings/vm_hook.h"
#include "pool/out_of_memory_report.h"

namespace symalloc {

PoolObj::~PoolObj() {
  if (vm_type >= 0) ReleaseVmType(vm_type);
}

void* PoolObj::Alloc(int64_t nbytes, int64_t align, bool escapes, const std::string& tag, const Patience* patience) {
  try {
    if (patience == nullptr) return pool.Alloc(nbytes, align, escapes, tag);
    return pool.AllocWaiting(nbytes, align, escapes, tag, *patience);
  } catch (const OverBudget&) {
    throw;
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.what() + MostHeld());
  }
}

void* PoolObj::Take(int64_t nbytes, int64_t align, bool escapes, const std::string& tag, const Patience* patience) {
  void* block = Alloc(nbytes, align, escapes, tag, patience);
  if (!tag.empty()) pool.Tag(block, nbytes, tag);
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
