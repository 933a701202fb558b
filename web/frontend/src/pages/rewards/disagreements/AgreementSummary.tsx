import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Trans } from "react-i18next";

import { api, body, type Schemas } from "../../../api/client";
import { Failure, Waiting } from "../../../components/States";
import { count } from "../../../format/count";
import { figure, interval } from "../../../format/figure";
import { t } from "../../../i18n";

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
        <Trans
          i18nKey="No pair of the store was rated by both. Score the same responses with both: <code>assay score responses.jsonl --model NAME --save</code>"
          components={{ code: <code /> }}
        />
      </Text>
    );
  const labelled = data.label_supports_first + data.label_supports_second;
  return (
    <Text size="sm" className="panel" component="div">
      {t("Of {{pairs}} that both rated they agree on {{agree}}, disagree on {{disagree}}", {
        pairs: t("{{count}} pairs", { count: data.common }),
        agree: data.agree,
        disagree: data.disagree,
      })}
      {data.tied > 0 && t(", and one of them has no preference on {{tied}}", { tied: count(data.tied) })}.{" "}
      <Trans
        i18nKey="Agreement <b>{{share}}</b> ({{interval}})."
        values={{ share: figure(data.share), interval: interval(data.low, data.high) }}
        components={{ b: <b /> }}
      />
      {data.disagree > 0 && (
        <>
          {" "}
          <Trans
            i18nKey="Where they disagree the label supports <b>{{first}}</b> {{firsts}} times and <b>{{second}}</b> {{seconds}} times"
            values={{ first: data.first, firsts: data.label_supports_first, second: data.second, seconds: data.label_supports_second }}
            components={{ b: <b /> }}
          />
          {data.unlabelled > 0 && t("; {{unlabelled}} have no label for either", { unlabelled: count(data.unlabelled) })}.
          {labelled === 0 && t(" Send some to people to find out who is right.")}
        </>
      )}
    </Text>
  );
}
