#include "pool/out_of_memory_report.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace symalloc {

namespace {

constexpr size_t kShown = 5;  // tags

std::string Text(const Holding& held) {
  return std::to_string(held.nbytes) + " bytes in " + std::to_string(held.blocks) +
         (held.blocks == 1 ? " block" : " blocks");
}

std::string Bytes(int64_t count) { return std::to_string(count) + (count == 1 ? " byte" : " bytes"); }

}  // namespace

std::string OutOfMemoryReport::Text() const {
  int64_t spare = reserved - in_use;
  int64_t lacking = reserved + missing - limit;
  std::string text = Bytes(size) + " do not fit under the limit of " + std::to_string(limit) + ": " +
                     std::to_string(in_use) + " are in use, " + std::to_string(reserved) + " reserved";
  if (spare > 0) {
    text += ", " + std::to_string(spare) + " are free within pages that are in use, at most " +
            std::to_string(piece) + " of them in one piece";
  }
  return text + "\n  help: raise the limit by " + Bytes(lacking) + ", or free as much, or run at smaller shapes";
}

std::string HeldText(const std::map<std::string, Holding>& by_tag) {
  std::vector<std::pair<std::string, Holding>> most;
  Holding others;
  for (const auto& [tag, held] : by_tag) {
    if (tag.empty()) {
      others = held;
    } else {
      most.emplace_back(tag, held);
    }
  }
  if (most.empty()) return "";
  std::stable_sort(most.begin(), most.end(),
                   [](const auto& a, const auto& b) { return a.second.nbytes > b.second.nbytes; });
  std::string text;
  for (size_t i = 0; i < std::min(most.size(), kShown); ++i) {
    text += (i == 0 ? "\n  held: `" : ", `") + most[i].first + "` " + Text(most[i].second);
  }
  if (most.size() > kShown) text += ", " + std::to_string(most.size() - kShown) + " tags more";
  return others.blocks > 0 ? text + ", without a tag " + Text(others) : text;
}

std::string OverBudgetText(const std::string& session, int64_t nbytes, int64_t limit, int64_t taken, bool paged) {
  return Bytes(nbytes) + (paged ? " of whole pages" : "") + " do not fit into the session `" + session +
         "`, whose limit is " + std::to_string(limit) + ": " + std::to_string(taken) + " are held\n  help: " +
         (paged ? "claim more blocks, or " : "raise the limit of the session by ") + Bytes(taken + nbytes - limit) +
         (paged ? " more" : "") + ", or free as much, or run at smaller shapes";
}

std::string SessionText(const std::string& session, int64_t live, int64_t limit) {
  return "\n  session: `" + session + "` holds " + Bytes(live) +
         (limit < 0 ? "" : " of the " + std::to_string(limit) + " that it may");
}

std::string NoAddressSpace(int64_t size, int64_t piece, int64_t capacity) {
  return "no " + Bytes(size) + " of address space are free in one piece: the largest has " + Bytes(piece) + " of " +
         std::to_string(capacity) + "\n  help: a larger capacity would help";
}

}  // namespace symalloc
