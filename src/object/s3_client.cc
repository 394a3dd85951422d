#include "object/s3_client.h"

#include <fmt/format.h>

#include <thread>

#include "base/try.h"
#include "codec/crc32c.h"
#include "object/s3_exchange.h"
#include "object/s3_text.h"
#include "object/signature.h"
#include "object/xml.h"

namespace deepfreeze {
namespace {

constexpr const char* kChecksumField = "x-amz-checksum-crc32c";
constexpr const char* kChecksumTypeField = "x-amz-checksum-type";
constexpr const char* kOfWholeObject = "FULL_OBJECT";
// A store may put the parts of a large object together for minutes.
constexpr std::chrono::minutes kCompleteSilenceMax{5};

void refuse_if_present(std::vector<HttpField>& fields, IfPresent if_present) {
  if (if_present == IfPresent::kRefuse) fields.push_back({"if-none-match", "*"});
}

// A write that finds no key does not tell whether an object is there.
Error of_writing(Error error) {
  if (error.code() != ErrorCode::kNotFound) return error;
  return {ErrorCode::kIo, error.message()};
}

std::string complete_body(std::span<const UploadedPart> parts) {
  std::string body = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    body += fmt::format(
        "<Part><ChecksumCRC32C>{}</ChecksumCRC32C><ETag>{}</ETag><PartNumber>{}</PartNumber></"
        "Part>",
        checksum_text(parts[i].crc32c), xml_escaped(parts[i].etag), i + 1);
  }
  return body + "</CompleteMultipartUpload>";
}

std::string range_text(std::uint64_t offset, std::size_t bytes) {
  return fmt::format("bytes={}-{}", offset, offset + bytes - 1);
}

// The fault of an answer with bytes. It must have all that were asked for and that the object has.
std::string find_fault_of_range(const HttpResponse& response, std::uint64_t offset,
                                std::size_t bytes) {
  if (response.status == 200 && offset == 0) return "";  // the whole object, which fits
  const auto range = parse_content_range(response.field("content-range").value_or(""));
  if (response.status != 206 || !range) return "the store does not answer with a range";
  const bool is_asked = range->begin == offset &&
                        range->end == std::min<std::uint64_t>(offset + bytes, range->total) &&
                        range->end - range->begin == response.into_bytes;
  return is_asked ? "" : "the store answers with another range";
}

}  // namespace

S3Client::S3Client(Settings settings)
    : exchange_(std::make_unique<S3Exchange>(std::move(settings))) {}

S3Client::~S3Client() = default;

void S3Client::stop() { exchange_->stop(); }

bool S3Client::is_stopped() const { return exchange_->is_stopped(); }

S3Client::Time S3Client::real_time() {
  return {.now = [] { return std::chrono::system_clock::now(); },
          .sleep = [](std::chrono::milliseconds pause) { std::this_thread::sleep_for(pause); }};
}

const ObjectPlace& S3Client::place() const { return exchange_->place(); }

std::chrono::system_clock::time_point S3Client::now() const { return exchange_->now(); }

// After an answer that was lost, a refusal may be due to our own success.
Status S3Client::look_who_won(std::string_view key, const ObjectInfo& wanted, Error refusal) {
  const auto there = head(key);
  if (!there && there.error().code() != ErrorCode::kNotFound) {
    return std::unexpected(there.error());
  }
  if (!there) return std::unexpected(of_writing(std::move(refusal)));
  // Without a checksum of the store's the caller has to look.
  if (there->bytes == wanted.bytes && there->crc32c == wanted.crc32c) return {};
  return fail(ErrorCode::kExists, refusal.message());
}

Status S3Client::put(std::string_view key, std::span<const std::byte> bytes, std::uint32_t crc32c,
                     IfPresent if_present) {
  S3Request request{.operation = "put",
                    .method = "PUT",
                    .key = key,
                    .fields = {{kChecksumField, checksum_text(crc32c)}},
                    .body = bytes};
  refuse_if_present(request.fields, if_present);
  DF_TRY(const S3Answer answer, exchange_->perform(request));
  if (!answer.failure) return {};
  Error error = error_of(*answer.failure, exchange_->name_of(request));
  if (error.code() == ErrorCode::kExists && answer.may_have_acted_before) {
    return look_who_won(key, {.bytes = bytes.size(), .crc32c = crc32c}, std::move(error));
  }
  return std::unexpected(of_writing(std::move(error)));
}

Result<std::string> S3Client::begin_upload(std::string_view key) {
  DF_TRY_VOID(check_xml_library());
  const auto begun = now();
  std::string id;
  const S3Request request{
      .operation = "begin an upload to",
      .method = "POST",
      .key = key,
      .query = "uploads=",
      .fields = {{"x-amz-checksum-algorithm", "CRC32C"}, {kChecksumTypeField, kOfWholeObject}},
      .find_fault = [&id](const HttpResponse& response) -> std::string {
        const auto root = parse_xml(response.body);
        if (!root) return root.error().message();
        id = root->text_of("UploadId");
        return id.empty() ? "the answer has no upload id" : "";
      }};
  const auto answer = exchange_->perform(request);
  const bool may_have_begun_others = answer ? answer->may_have_acted_before
                                            : answer.error().code() == ErrorCode::kIo ||
                                                  answer.error().code() == ErrorCode::kTimeout;
  if (may_have_begun_others) abort_others(key, id, begun);
  if (!answer) return std::unexpected(answer.error());
  if (answer->failure) {
    return std::unexpected(of_writing(error_of(*answer->failure, exchange_->name_of(request))));
  }
  return id;
}

// Best effort: probe() finds those that stay.
void S3Client::abort_others(std::string_view key, std::string_view kept, SystemTime begun) {
  constexpr std::chrono::minutes kClocksDiffer{15};  // at most, else a store takes no signature
  const auto uploads = open_uploads(key);
  if (!uploads) return;
  for (const OpenUpload& upload : *uploads) {
    const auto initiated = parse_iso_time(upload.initiated);
    if (upload.key != key || upload.upload_id == kept || !initiated) continue;
    if (*initiated >= begun - kClocksDiffer) std::ignore = abort(key, upload.upload_id);
  }
}

Result<UploadedPart> S3Client::put_part(std::string_view key, std::string_view upload_id,
                                        int number, std::span<const std::byte> bytes,
                                        std::uint32_t crc32c) {
  const std::string operation = fmt::format("put part {} of", number);
  auto answer = exchange_->ask(
      {.operation = operation,
       .method = "PUT",
       .key = key,
       .query = fmt::format("partNumber={}&uploadId={}", number, uri_encode(upload_id, false)),
       .fields = {{kChecksumField, checksum_text(crc32c)}},
       .body = bytes,
       .find_fault = [](const HttpResponse& response) -> std::string {
         return response.field("etag").value_or("").empty() ? "the answer has no ETag" : "";
       }});
  if (!answer) return std::unexpected(of_writing(std::move(answer).error()));
  return UploadedPart{.etag = std::string(*answer->field("etag")), .crc32c = crc32c};
}

Status S3Client::complete(std::string_view key, std::string_view upload_id,
                          std::span<const UploadedPart> parts, const ObjectInfo& info,
                          IfPresent if_present) {
  const std::string body = complete_body(parts);
  S3Request request{.operation = "complete the upload to",
                    .method = "POST",
                    .key = key,
                    .query = "uploadId=" + uri_encode(upload_id, false),
                    .fields = {{"content-type", "application/xml"},
                               {kChecksumField, checksum_text(info.crc32c.value_or(0))},
                               {kChecksumTypeField, kOfWholeObject}},
                    .body = std::as_bytes(std::span(body)),
                    .may_fail_in_body = true,
                    .silence_max = kCompleteSilenceMax};
  refuse_if_present(request.fields, if_present);
  DF_TRY(const S3Answer answer, exchange_->perform(request));
  if (!answer.failure) return {};
  Error error = error_of(*answer.failure, exchange_->name_of(request));
  // An upload that is gone was completed, by a try of ours, or aborted by another process.
  const bool may_be_ours = error.code() == ErrorCode::kNotFound ||
                           (error.code() == ErrorCode::kExists && answer.may_have_acted_before);
  if (!may_be_ours) return std::unexpected(std::move(error));
  DF_TRY_VOID(look_who_won(key, info, std::move(error)));
  std::ignore = abort(key, upload_id);  // if another process's object is there, it is still open
  return {};
}

Status S3Client::abort(std::string_view key, std::string_view upload_id) {
  const auto answer = exchange_->ask({.operation = "abort the upload to",
                                      .method = "DELETE",
                                      .key = key,
                                      .query = "uploadId=" + uri_encode(upload_id, false),
                                      .is_cleanup = true});
  if (answer || answer.error().code() == ErrorCode::kNotFound) return {};
  return std::unexpected(answer.error());
}

Result<ObjectInfo> S3Client::head(std::string_view key) {
  DF_TRY(const HttpResponse response,
         exchange_->ask({.operation = "look at",
                         .method = "HEAD",
                         .key = key,
                         .fields = {{"x-amz-checksum-mode", "ENABLED"}},
                         .find_fault = [](const HttpResponse& answer) -> std::string {
                           const auto bytes = answer.field("content-length").value_or("");
                           return parse_number(bytes) ? "" : "the answer has no size";
                         }}));
  ObjectInfo info{.bytes = *parse_number(*response.field("content-length"))};
  if (response.field(kChecksumTypeField).value_or(kOfWholeObject) == kOfWholeObject) {
    info.crc32c = parse_checksum(response.field(kChecksumField).value_or(""));
  }
  return info;
}

Result<std::size_t> S3Client::get(std::string_view key, std::uint64_t offset,
                                  std::span<std::byte> into) {
  if (into.empty()) return 0;
  const S3Request request{.operation = "get",
                          .method = "GET",
                          .key = key,
                          .fields = {{"range", range_text(offset, into.size())}},
                          .into = into,
                          .find_fault = [&](const HttpResponse& response) {
                            return find_fault_of_range(response, offset, into.size());
                          }};
  DF_TRY(const S3Answer answer, exchange_->perform(request));
  if (!answer.failure) return answer.response.into_bytes;
  constexpr int kBeyondItsEnd = 416;
  if (answer.failure->status == kBeyondItsEnd) return 0;
  return std::unexpected(error_of(*answer.failure, exchange_->name_of(request)));
}

Result<std::string> S3Client::get_whole(std::string_view key, std::size_t bytes) {
  std::string text(bytes, '\0');
  const auto into = std::as_writable_bytes(std::span(text));
  DF_TRY(const HttpResponse answer,
         exchange_->ask(
             {.operation = "get",
              .method = "GET",
              .key = key,
              .fields = {{"x-amz-checksum-mode", "ENABLED"}},
              .into = into,
              .find_fault = [&](const HttpResponse& response) -> std::string {
                const auto crc =
                    parse_checksum(response.field("x-amz-checksum-crc32c").value_or(""));
                const bool is_damaged = crc && *crc != crc32c(into.first(response.into_bytes));
                return is_damaged ? "its bytes have another checksum than the store tells" : "";
              }}));
  const std::size_t found = into.empty() ? answer.body.size() : answer.into_bytes;
  if (found == bytes) return text;
  return fail(ErrorCode::kGone, fmt::format("get {}/{}: it has {} bytes now, and had {}",
                                            place().url(), key, found, bytes));
}

Status S3Client::remove(std::string_view key) {
  const auto answer = exchange_->ask({.operation = "delete", .method = "DELETE", .key = key});
  if (answer || answer.error().code() == ErrorCode::kNotFound) return {};
  return std::unexpected(answer.error());
}

}  // namespace deepfreeze
