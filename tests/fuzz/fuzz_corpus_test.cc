// All that fuzzing starts from and has found, of every target, through every target.
#include <gtest/gtest.h>

#include <set>

#include "base/log.h"
#include "fuzz/corpus_text.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/seeds.h"

namespace deepfreeze {

void PrintTo(const FuzzTarget& target, std::ostream* out) { *out << target.name; }

namespace {

const std::set<std::string>& all_inputs() {
  static const std::set<std::string> all = [] {
    std::set<std::string> inputs;
    for (const FuzzTarget& target : fuzz_targets()) {
      const Seeds seeds = seeds_of(target.name);
      inputs.insert(seeds.own.begin(), seeds.own.end());
      inputs.insert(seeds.found.begin(), seeds.found.end());
    }
    return inputs;
  }();
  return all;
}

class FuzzCorpus : public testing::TestWithParam<FuzzTarget> {
 protected:
  FuzzCorpus() {
    set_log_sink([](std::string_view) {});
  }
  ~FuzzCorpus() override { set_log_sink({}); }
};

TEST_P(FuzzCorpus, BreaksNoPromise) {
  for (const std::string& input : all_inputs()) {
    const Status kept = GetParam().run(input);
    EXPECT_TRUE(kept.has_value()) << kept.error().message() << "\n" << escape_input(input);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzCorpus, testing::ValuesIn(fuzz_targets()),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

TEST(CorpusText, HoldsAnyBytes) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::vector<std::string> inputs = {"", "#", "\\x", "\n", all};
  const std::vector<std::string> read = parse_corpus("# a comment\n" + write_corpus(inputs));
  EXPECT_EQ(std::set(read.begin(), read.end()), std::set(inputs.begin(), inputs.end()));
  EXPECT_EQ(read.size(), inputs.size());
}

}  // namespace
}  // namespace deepfreeze
