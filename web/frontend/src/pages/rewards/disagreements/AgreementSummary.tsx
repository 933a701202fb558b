import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { Failure, Waiting } from "../../../components/States";
import { count, counted } from "../../../format/count";
import { figure, interval } from "../../../format/figure";

type Rater = Schemas["RaterEntry"];

/** How often the two prefer the same response, and whom the label supports where they do not. */
export function AgreementSummary({ first, second }: { first: Rater; second: Rater }) {
  const query = { first: first.reference, second: second.reference };
  const { data, failureReason: error } = useQuery({
    queryKey: ["rewards", "agreement", query],
    queryFn: () => body(api.GET("/api/rewards/agreement", { params: { query } })),
  });
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  if (data.common === 0)
    return (
      <Text size="sm" className="panel">
        No pair of the store was rated by both. Score the same responses with both: <code>assay score responses.jsonl --model NAME --save</code>
      </Text>
    );
  const labelled = data.label_supports_first + data.label_supports_second;
  return (
    <Text size="sm" className="panel" component="div">
      Of {counted(data.common, "pair")} that both rated they agree on {count(data.agree)}, disagree on {count(data.disagree)}
      {data.tied > 0 && `, and one of them has no preference on ${count(data.tied)}`}. Agreement{" "}
      <b>{figure(data.share)}</b> ({interval(data.low, data.high)}).
      {data.disagree > 0 && (
        <>
          {" "}
          Where they disagree the label supports <b>{data.first}</b> {count(data.label_supports_first)} times and{" "}
          <b>{data.second}</b> {count(data.label_supports_second)} times
          {data.unlabelled > 0 && `; ${count(data.unlabelled)} have no label for either`}.
          {labelled === 0 && " Send some to people to find out who is right."}
        </>
      )}
    </Text>
  );
}
