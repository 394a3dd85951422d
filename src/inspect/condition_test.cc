#include "inspect/condition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace deepfreeze::condition_test {
namespace {

const std::map<std::string, double> kMetrics = {{"loss", 0.15},
                                                {"val/acc@5", 0.9},
                                                {"nan", std::nan("")},
                                                {"step", 7},
                                                {"two words", 1},
                                                {"and", 2},
                                                {"inf", std::numeric_limits<double>::infinity()}};
const std::map<std::string, std::string> kTags = {{"lr", "0.0003"},   {"note", "best of all"},
                                                  {"who", "me"},      {"empty", ""},
                                                  {"release", "1.1"}, {"my,lr", "1"}};
const Subject kSubject{
    .step = 100, .steps = 12, .bytes = 5'000'000'000, .metrics = &kMetrics, .tags = &kTags};

bool holds(std::string_view text) {
  const auto condition = Condition::parse(text);
  EXPECT_TRUE(condition) << text << ": " << (condition ? "" : condition.error().message());
  return condition && condition->holds(kSubject);
}

TEST(Condition, ComparesNumbers) {
  for (const char* text :
       {"loss<0.2", "loss<=0.15", "loss>0.1", "loss>=.15", "loss=0.15", "loss==15e-2", "loss!=1",
        "step=100", "steps>11", "bytes>4.9e9", "metric.step=7", "val/acc@5 >= 0.9", "loss>-1",
        "loss<+1", "inf>1e300", "inf=inf", "nan!=1"}) {
    EXPECT_TRUE(holds(text)) << text;
  }
  for (const char* text : {"loss<0.15", "loss<=0.1", "loss>0.15", "loss>=0.2", "loss=0.2",
                           "loss!=0.15", "step=7", "steps>12", "bytes<5e9", "nan<1", "nan=nan"}) {
    EXPECT_FALSE(holds(text)) << text;
  }
}

TEST(Condition, EqualityOfTagsIsOfTextsAndOrderIsOfNumbers) {
  for (const char* text :
       {"tag.lr=0.0003", "tag.lr<1e-3", "tag.lr<=3e-4", "tag.lr>=3e-4", "tag.lr!=1", "tag.who=me",
        "tag.who!=you", "tag.note='best of all'", "tag.empty=''", "tag.lr!=high", "tag.lr!=3e-4",
        "tag.release=1.1", "tag.release='1.1'", "tag.release!=1.10", "tag.release<=1.10"}) {
    EXPECT_TRUE(holds(text)) << text;
  }
  for (const char* text :
       {"tag.lr>3e-4", "tag.lr=3e-4", "tag.who=you", "tag.who<you", "tag.who>=me", "tag.who<1",
        "tag.lr=high", "tag.note=best", "tag.release=1.10", "tag.release==1.10",
        "tag.release='1.10'", "tag.release!='1.1'", "tag.release<'2'"}) {
    EXPECT_FALSE(holds(text)) << text;
  }
}

TEST(Condition, WhatIsNotThereFulfilsNothing) {
  for (const char* text : {"accuracy<1", "accuracy!=1", "tag.x=1", "tag.x!=1", "tag.x=''",
                           "metric.lr=0.0003", "tag.loss=0.15"}) {
    EXPECT_FALSE(holds(text)) << text;
  }
}

TEST(Condition, AllOfThemMustHold) {
  EXPECT_TRUE(holds("loss<0.2 and tag.lr<=3e-4 and step>=100"));
  EXPECT_FALSE(holds("loss<0.2 and tag.lr<=3e-4 and step>100"));
  EXPECT_FALSE(holds("loss>0.2 and step=100"));
  EXPECT_TRUE(holds("  loss  <  0.2\tand\nstep = 100  "));
  EXPECT_TRUE(holds("'two words'=1 and \"two words\"<2"));
  EXPECT_TRUE(holds("\"metric.two words\"=1 and 'tag.my,lr'=1")) << "all of a name is in quotes";
  EXPECT_TRUE(holds("'and'=2 and and=2")) << "a metric may have any name";
}

TEST(Condition, AnErrorSaysWhere) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "at character 1: a name should be here, not the end"},
      {"loss", "at character 5: one of < <= > >= = != should be here, not the end"},
      {"loss<", "at character 6: a value should be here, not the end"},
      {"metric.'two words'=1", "at character 1: 'metric.' names nothing"},
      {"loss<<0.2", "at character 5: one of < <= > >= = != should be here, not '<<'"},
      {"loss<low", "at character 6: a number should be here, not 'low'"},
      {"loss<0.2x", "at character 6: a number should be here, not '0.2x'"},
      {"loss<0.2 step=1", "at character 10: 'and' or the end should be here, not 'step'"},
      {"loss<0.2 or step=1", "at character 10: 'and' or the end should be here, not 'or'"},
      {"loss<0.2 'and' step=1", "at character 10: 'and' or the end should be here, not 'and'"},
      {"loss<0.2 and", "at character 13: a name should be here, not the end"},
      {"<0.2", "at character 1: a name should be here, not '<'"},
      {"tag.=1", "at character 1: 'tag.' names nothing"},
      {"tag.x='1", "at character 7: the quote has no end"},
      {"step=ten", "at character 6: a number should be here, not 'ten'"},
      {"loss < 0.2 \x1b", "condition 'loss < 0.2 \\x1b', at character 12"},
  };
  for (const auto& [text, message] : cases) {
    const auto condition = Condition::parse(text);
    ASSERT_FALSE(condition) << text;
    EXPECT_EQ(condition.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(condition.error().message().find(message), std::string::npos)
        << condition.error().message();
  }
}

TEST(Field, SortsNumbersThenTextsThenNothing) {
  const std::vector<FieldValue> sorted = {-1.0,
                                          std::string_view("0.5"),
                                          2.0,
                                          std::string_view("1e3"),
                                          std::nan(""),
                                          std::string_view("a"),
                                          std::string_view("b"),
                                          std::monostate()};
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t k = 0; k < sorted.size(); ++k) {
      EXPECT_EQ(comes_before(sorted[i], sorted[k]), i < k) << i << " " << k;
    }
  }
}

}  // namespace
}  // namespace deepfreeze::condition_test
