import { Anchor, Stack, Title } from "@mantine/core";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";

import { useAllows } from "../../api/session";
import { Empty } from "../../components/States";
import { t } from "../../i18n";
import { JobForm } from "./JobForm";
import { useKinds, type Settings } from "./useJobs";
import { titleOf } from "./words";

/** The form of a kind, filled in as its address says. */
export function NewJobPage() {
  const { kind = "" } = useParams();
  const [query] = useSearchParams();
  const navigate = useNavigate();
  const allowed = useAllows("curate");
  const title = useKinds().data?.kinds.find(({ name }) => name === kind)?.title ?? kind;
  if (!allowed) return <Empty title={t("Starting jobs takes the role curator")}>{t("An admin can change that under Access.")}</Empty>;
  return (
    <Stack gap="sm">
      <Anchor component={Link} to="/jobs" size="sm">
        {t("All jobs")}
      </Anchor>
      <Title order={1}>{titleOf(kind, title)}</Title>
      <div className="panel">
        <JobForm key={`${kind} ${query.toString()}`} kind={kind} first={settingsIn(query)} onStarted={({ id }) => navigate(`/jobs/${id}`)} />
      </div>
    </Stack>
  );
}

function settingsIn(query: URLSearchParams): Settings {
  return Object.fromEntries([...new Set(query.keys())].map((name) => [name, valueOf(query.getAll(name))]));
}

function valueOf(values: string[]): Settings[string] {
  if (values.length > 1) return values;
  return values[0] === "true" ? true : values[0] === "false" ? false : (values[0] ?? null);
}
