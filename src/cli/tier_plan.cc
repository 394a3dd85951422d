#include "cli/tier_plan.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <vector>

#include "base/try.h"
#include "cli/output.h"
#include "cli/run_ref.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kStepsMax = 1'000'000'000'000;
constexpr std::uint64_t kFilesMax = kManifestFilesMax;
constexpr std::uint64_t kPlanMonthsMax = 1200;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 60U;

struct Plan {
  PlanArguments asked;
  std::vector<std::uint64_t> months;  // one, or the first and another
  std::vector<TierMonth> bills;       // of these
};

Status fill_in_from_run(const std::string& run, TierUse& use) {
  if (run.empty()) {
    if (use.files == 0) use.files = 1;
    if (use.checkpoint_bytes > 0) return {};
    return fail(ErrorCode::kInvalidArgument,
                "--plan needs the bytes of a checkpoint: name a RUN, or give --bytes");
  }
  DF_TRY(const OpenedRun opened, open_whole_run(run));
  DF_TRY(const Manifest newest, choose(opened, {.path = opened.path}));
  if (use.files == 0) use.files = newest.files.size();
  if (use.checkpoint_bytes == 0) use.checkpoint_bytes = stored_bytes(newest);
  return {};
}

Result<Plan> make_plan(const std::string& run, PlanArguments asked) {
  if (asked.use.steps_per_hour == 0) {
    return fail(ErrorCode::kInvalidArgument, "--plan needs --steps-per-hour");
  }
  DF_TRY_VOID(fill_in_from_run(run, asked.use));
  Plan plan{.asked = asked, .months = {1}};
  if (asked.months > 1) plan.months.push_back(asked.months);
  for (const std::uint64_t month : plan.months) {
    plan.bills.push_back(month_of_tier(asked.use, asked.prices, month));
  }
  return plan;
}

std::string bytes_text(double bytes) {
  return human_bytes(static_cast<std::uint64_t>(std::min(std::round(bytes), 1e19)));
}
std::string count_text(double count) { return fmt::format("{:.0f}", std::ceil(count)); }
std::string money_text(double money) { return fmt::format("{:.2f}", money); }

void print_plan(const Plan& plan, std::ostream& out) {
  std::vector<Column> columns = {{""}};
  for (const std::uint64_t month : plan.months) {
    columns.push_back({fmt::format("month {}", month), Column::Align::kRight});
  }
  Table table(std::move(columns));
  const auto add = [&](const char* what, const std::function<std::string(const TierMonth&)>& text) {
    std::vector<std::string> cells = {what};
    for (const TierMonth& month : plan.bills) cells.push_back(text(month));
    table.add(std::move(cells));
  };
  add("checkpoints copied", [](const TierMonth& m) { return count_text(m.checkpoints); });
  add("kept at its end", [](const TierMonth& m) { return count_text(m.kept); });
  add("bytes at its end", [](const TierMonth& m) { return bytes_text(m.bytes); });
  add("PUT, POST, LIST", [](const TierMonth& m) { return count_text(m.puts); });
  add("GET, HEAD", [](const TierMonth& m) { return count_text(m.gets); });
  add("cost of bytes", [](const TierMonth& m) { return money_text(m.storage_cost); });
  add("cost of requests", [](const TierMonth& m) { return money_text(m.request_cost); });
  add("cost", [](const TierMonth& m) { return money_text(m.cost()); });
  table.print(out);
  const TierPrices& prices = plan.asked.prices;
  fmt::print(out,
             "prices: {} for a GB and month, {} for 1,000 PUT, POST or LIST, {} for 1,000 GET\n",
             prices.gb_month, prices.thousand_puts, prices.thousand_gets);
  if (prices == kExamplePrices) {
    fmt::print(out,
               "note: these are examples in dollars, not today's prices of your store; give "
               "yours by --price-...\n");
  }
  fmt::print(out, "note: restores and traffic out of the store are not in it\n");
}

void write_month(JsonWriter& json, std::uint64_t number, const TierMonth& month) {
  json.object("month", number, "checkpoints", month.checkpoints, "kept", month.kept, "bytes",
              month.bytes, "puts", month.puts, "gets", month.gets, "storage_cost",
              month.storage_cost, "request_cost", month.request_cost, "cost", month.cost());
}

void print_plan_document(const Plan& plan, std::ostream& out) {
  const TierUse& use = plan.asked.use;
  const TierPrices& prices = plan.asked.prices;
  JsonWriter document = json_document("tiers");
  document.members("every", use.every, "keep_last", use.keep_last, "keep_every", use.keep_every,
                   "steps_per_hour", use.steps_per_hour, "checkpoint_bytes", use.checkpoint_bytes,
                   "files", use.files);
  document.key("prices");
  document.object("gb_month", prices.gb_month, "thousand_puts", prices.thousand_puts,
                  "thousand_gets", prices.thousand_gets, "are_examples", prices == kExamplePrices);
  document.key("months");
  document.begin_array();
  for (std::size_t i = 0; i < plan.months.size(); ++i) {
    write_month(document, plan.months[i], plan.bills[i]);
  }
  document.end_array();
  print_json(out, std::move(document));
}

}  // namespace

void add_plan_options(Verb& verb, PlanArguments& arguments) {
  TierUse& use = arguments.use;
  TierPrices& prices = arguments.prices;
  verb.flag("--plan", arguments.plan,
            "Instead: what a tier in an object store would cost each month, with the size of\n"
            "RUN's newest checkpoint");
  verb.value("--every", use.every, "--plan: the tier gets steps that are a multiple of K")
      .between(1, kStepsMax);
  verb.value("--keep-last", use.keep_last, "--plan: the tier keeps the newest N")
      .between(1, kStepsMax);
  verb.value("--keep-every", use.keep_every, "--plan: and steps that are a multiple of K")
      .between(1, kStepsMax);
  verb.value("--steps-per-hour", use.steps_per_hour, "--plan: of the training, at all hours");
  verb.value("--bytes", use.checkpoint_bytes, "--plan: of a checkpoint, instead of RUN's")
      .between(1, kBytesMax);
  verb.value("--files", use.files, "--plan: of a checkpoint; one for each rank")
      .between(1, kFilesMax);
  verb.value("--months", arguments.months, "--plan: the month to tell beside the first")
      .between(1, kPlanMonthsMax)
      .default_in_help();
  verb.value("--price-gb-month", prices.gb_month, "--plan: of 10^9 bytes for a month; an example")
      .default_in_help();
  verb.value("--price-puts", prices.thousand_puts, "--plan: of 1,000 PUT, POST or LIST; an example")
      .default_in_help();
  verb.value("--price-gets", prices.thousand_gets, "--plan: of 1,000 GET or HEAD; an example")
      .default_in_help();
}

Result<ExitCode> plan_tier(const std::string& run, PlanArguments arguments, Console& console) {
  DF_TRY(const Plan plan, make_plan(run, arguments));
  if (console.json) {
    print_plan_document(plan, console.out);
  } else {
    print_plan(plan, console.out);
  }
  return kExitGood;
}

}  // namespace deepfreeze
