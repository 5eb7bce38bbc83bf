#include "bindings/pool_object.h"

#include <algorithm>
#include <map>
#include <utility>

#include "bindings/vm_hook.h"

namespace symalloc {

namespace {

constexpr size_t kShown = 5;  // tags

struct Share {
  int64_t nbytes = 0;
  int64_t blocks = 0;

  std::string Text() const {
    return std::to_string(nbytes) + " bytes in " + std::to_string(blocks) + (blocks == 1 ? " block" : " blocks");
  }
};

}  // namespace

PoolObj::~PoolObj() {
  if (vm_type >= 0) ReleaseVmType(vm_type);
}

void* PoolObj::Alloc(int64_t nbytes, int64_t align, bool escapes, const std::string& tag) {
  try {
    return pool.Alloc(nbytes, align, escapes, tag);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.what() + MostHeld());
  }
}

void* PoolObj::Take(int64_t nbytes, int64_t align, bool escapes, const std::string& tag) {
  void* block = Alloc(nbytes, align, escapes, tag);
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
  std::map<std::string, Share> by_tag;
  Statistics now = pool.statistics();
  Share others{now.live, now.allocs - now.frees};
  for (const Tagged& held : Holders()) {
    if (held.tag.empty()) continue;
    Share& share = by_tag[held.tag];
    for (auto [to, sign] : {std::pair(&share, 1), std::pair(&others, -1)}) {
      to->nbytes += sign * held.nbytes;
      to->blocks += sign;
    }
  }
  if (by_tag.empty()) return "";
  std::vector<std::pair<std::string, Share>> most(by_tag.begin(), by_tag.end());
  std::stable_sort(most.begin(), most.end(),
                   [](const auto& a, const auto& b) { return a.second.nbytes > b.second.nbytes; });
  std::string text;
  for (size_t i = 0; i < std::min(most.size(), kShown); ++i) {
    text += (i == 0 ? "\n  held: `" : ", `") + most[i].first + "` " + most[i].second.Text();
  }
  if (most.size() > kShown) text += ", " + std::to_string(most.size() - kShown) + " tags more";
  return others.blocks > 0 ? text + ", without a tag " + others.Text() : text;
}

}  // namespace symalloc
