#include "cli/metric_columns.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/test_run.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

TEST(MetricColumns, ThoseOfMostCheckpointsComeFirstAndOfTheseTheLosses) {
  const std::vector<Metrics> rows{
      {{"accuracy", 1}, {"val_loss", 2}, {"zeta", 3}}, {{"accuracy", 1}, {"val_loss", 2}}, {}};
  EXPECT_EQ(metrics_by_use(rows), (std::vector<std::string>{"val_loss", "accuracy", "zeta"}));
}

TEST(MetricColumns, AsManyAsFitAndOneAtLeast) {
  const std::vector<Metrics> rows{{{"a_loss", 0.125}, {"b", 1}, {"c", 1234.5}}};
  const auto shown = [&](std::optional<std::size_t> width) {
    const MetricColumns columns = fitting_metrics(rows, width);
    EXPECT_EQ(columns.names.size() + columns.left_out, 3U);
    return columns.names.size();
  };
  EXPECT_EQ(shown(std::nullopt), 3U);
  EXPECT_EQ(shown(8 + 3 + 8), 3U) << "the widths of a_loss, 1 and 1234.5, each with its space";
  EXPECT_EQ(shown(8 + 3 + 7), 2U);
  EXPECT_EQ(shown(8 + 2), 1U);
  EXPECT_EQ(shown(0), 1U);
  EXPECT_TRUE(fitting_metrics({{}}, 80).names.empty());
}

class LsColumns : public testing::Test {
 protected:
  void SetUp() override {
    FixtureSave save{.step = 7, .ranks = {{f32_tensor("w", {1})}}};
    for (int i = 0; i < 30; ++i) save.annotations.metrics[fmt::format("metric_{}", i)] = i;
    save.annotations.metrics["train_loss"] = 0.5;
    run_.save(save);
    save.step = 8;
    save.annotations.metrics = {{"train_loss", 0.25}};
    run_.save(save);
  }
  [[nodiscard]] std::string listed(std::optional<std::size_t> columns) const {
    std::ostringstream out;
    std::ostringstream err;
    const std::string run = run_.text();
    const std::vector<const char*> argv{"deepfreeze", "ls", run.c_str()};
    EXPECT_EQ(run_cli(3, argv.data(), {.out = out, .err = err, .columns = columns}), 0);
    return out.str();
  }
  RunFixture run_;
};

TEST_F(LsColumns, FitTheTerminal) {
  for (const std::size_t columns : {100U, 120U, 200U}) {
    const std::string out = listed(columns);
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(text_width(line), columns) << out;
    EXPECT_NE(out.find("train_loss"), std::string::npos) << out;
    EXPECT_NE(out.find(" of 31 metrics are shown; --json has all"), std::string::npos) << out;
  }
}

TEST_F(LsColumns, AreAllThereInAPipeAndInJson) {
  const std::string out = listed(std::nullopt);
  EXPECT_NE(out.find("metric_29"), std::string::npos) << out;
  EXPECT_EQ(out.find("are shown"), std::string::npos) << out;
  EXPECT_EQ(call_json({"ls", run_.text()}).json()["checkpoints"][1]["metrics"].size(), 31U);
}

}  // namespace
}  // namespace deepfreeze
