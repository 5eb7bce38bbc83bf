#include "pool/sessions.h"

#include <algorithm>
#include <utility>

#include "pool/pool.h"
#include "pool/pool_registry.h"

namespace symalloc {

namespace {

struct Entered {
  uint64_t pool_id;
  std::shared_ptr<Session> session;
  ChargeRef charge;  // of this and all that were entered before
};

// The sessions that a thread is in, which it leaves when it ends.
struct EnteredSessions : std::vector<Entered> {
  ~EnteredSessions() {
    for (const Entered& each : *this) {
      PoolRegistry::Global().With(each.pool_id, [](Pool* pool) { pool->CountLeft(); });
    }
  }
};

thread_local EnteredSessions entered;

// Adds a session and those it is within.
void AddTo(Charge* charge, const std::shared_ptr<Session>& session) {
  for (std::shared_ptr<Session> each = session; each != nullptr; each = each->parent) {
    if (std::find(charge->begin(), charge->end(), each) == charge->end()) charge->push_back(each);
  }
}

const Entered* Last(uint64_t pool_id) {
  auto of_pool = [pool_id](const Entered& each) { return each.pool_id == pool_id; };
  auto found = std::find_if(entered.rbegin(), entered.rend(), of_pool);
  return found == entered.rend() ? nullptr : &*found;
}

void SetCharges(uint64_t pool_id) {
  Charge charge;
  for (Entered& each : entered) {
    if (each.pool_id != pool_id) continue;
    AddTo(&charge, each.session);
    each.charge = std::make_shared<const Charge>(charge);
  }
}

}  // namespace

void Sessions::Enter(uint64_t pool_id, std::shared_ptr<Session> session) {
  entered.push_back({pool_id, std::move(session), nullptr});
  try {
    SetCharges(pool_id);
  } catch (const std::bad_alloc&) {
    entered.pop_back();
    throw;
  }
}

bool Sessions::Leave(uint64_t pool_id, const Session* session) {
  auto same = [&](const Entered& each) { return each.pool_id == pool_id && each.session.get() == session; };
  auto found = std::find_if(entered.rbegin(), entered.rend(), same);
  if (found == entered.rend()) return false;
  entered.erase(std::next(found).base());
  SetCharges(pool_id);
  return true;
}

ChargeRef Sessions::Current(uint64_t pool_id) {
  const Entered* last = Last(pool_id);
  return last == nullptr ? nullptr : last->charge;
}

std::shared_ptr<Session> Sessions::Innermost(uint64_t pool_id) {
  const Entered* last = Last(pool_id);
  return last == nullptr ? nullptr : last->session;
}

void Sessions::Inherit(uint64_t pool_id) {
  entered_ = std::count_if(entered.begin(), entered.end(), [&](const Entered& each) { return each.pool_id == pool_id; });
}

const Session* Sessions::Lacking(const Charge& charge, int64_t nbytes) {
  for (const auto& each : charge) {
    if (each->limit >= 0 && each->Takes(nbytes) > each->limit - each->taken) return each.get();
  }
  return nullptr;
}

void Sessions::Reserve(const Charge& charge, int64_t nbytes) const {
  if (const Session* lacking = Lacking(charge, nbytes)) {
    throw OverBudget(OverBudgetText(lacking->name, lacking->Takes(nbytes), lacking->limit, lacking->taken,
                                    lacking->page > 0) +
                         HeldText(Held(lacking)),
                     lacking);
  }
  for (const auto& each : charge) each->taken += each->Takes(nbytes);
}

void Sessions::Add(const void* block, const ChargeRef& charge, int64_t nbytes, std::string_view tag) {
  blocks_.insert_or_assign(block, Charged{charge, nbytes, std::string(tag)});
  for (const auto& each : *charge) {
    ++each->allocs;
    each->live += nbytes;
    each->peak_live = std::max(each->peak_live, each->live);
  }
}

void Sessions::Refund(const Charge& charge, int64_t nbytes) {
  for (const auto& each : charge) each->taken -= each->Takes(nbytes);
}

ChargeRef Sessions::Remove(const void* block) {
  auto found = blocks_.find(block);
  if (found == blocks_.end()) return nullptr;
  ChargeRef charge = std::move(found->second.charge);
  for (const auto& each : *charge) {
    ++each->frees;
    each->live -= found->second.nbytes;
  }
  blocks_.erase(found);
  return charge;
}

void Sessions::Tag(const void* block, std::string_view tag) {
  auto found = blocks_.find(block);
  if (found != blocks_.end()) found->second.tag = tag;
}

std::map<std::string, Holding> Sessions::Held(const Session* session) const {
  std::map<std::string, Holding> held;
  for (const auto& [_, charged] : blocks_) {
    auto is = [session](const auto& each) { return each.get() == session; };
    if (std::none_of(charged.charge->begin(), charged.charge->end(), is)) continue;
    Holding& holding = held[charged.tag];
    holding.nbytes += charged.nbytes;
    ++holding.blocks;
  }
  return held;
}

}  // namespace symalloc
