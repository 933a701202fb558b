import "./home.css";

import { Alert, Anchor, Button, Group, Stack, Text, Title } from "@mantine/core";
import { IconCheck } from "@tabler/icons-react";
import { useEffect } from "react";
import { Link } from "react-router";

import { useAllows } from "../../api/session";
import { Empty, Failure, Waiting } from "../../components/States";
import { t } from "../../i18n";
import { useFirstHour } from "./firstHour";
import { beginFirstHour } from "./following";
import { SampleStep } from "./SampleStep";
import { useHome, type Figures } from "./useHome";

/**
 * From a file, or a sample, to a trained policy, one step after another. Which are done is read off the workspace, so it
 * goes on where it was left, also by somebody else.
 */
export default function FirstHourPage() {
  const allowed = useAllows("curate");
  const home = useHome(allowed);
  if (!allowed) return <Empty title={t("The first hour takes the role curator")}>{t("An admin can change that under Access.")}</Empty>;
  const figures = home.data?.figures;
  return (
    <Stack gap="md" maw={820}>
      <div>
        <Title order={1}>{t("The first hour")}</Title>
        <Text size="sm" className="dim">
          {t("From raw preferences to a policy that learned from them. Leave whenever you like: it goes on where you were.")}
        </Text>
      </div>
      {figures == null ? (
        home.failureReason !== null ? (
          <Failure error={home.failureReason} />
        ) : home.data === undefined ? (
          <Waiting />
        ) : (
          <Alert color="yellow">{home.data.held}</Alert>
        )
      ) : (
        <Steps figures={figures} />
      )}
    </Stack>
  );
}

function Steps({ figures }: { figures: Figures }) {
  const { steps, next, leave } = useFirstHour(figures);
  useEffect(beginFirstHour, []);
  return (
    <>
      <ol className="first-hour" aria-label={t("The first hour")}>
        {steps.map((step, n) => (
          <li key={step.key} className="panel" data-state={step.done ? "done" : step === next ? "next" : "open"}>
            <span className="home-mark" role="img" aria-label={step.done ? t("done") : step === next ? t("next") : t("open")}>
              {step.done ? <IconCheck size={13} /> : n + 1}
            </span>
            <div className="home-grows">
              <Text fw={600}>{step.title}</Text>
              {step === next || !step.done ? (
                <Text size="sm" className="dim">
                  {step.why}
                </Text>
              ) : (
                step.figure !== null && (
                  <Text size="sm" className="dim">
                    {step.figure}
                  </Text>
                )
              )}
              {step === next && step.key === "import" && <SampleStep />}
            </div>
            {step === next ? (
              <Button component={Link} to={step.to} onClick={() => leave(step.key)} variant={step.key === "import" ? "default" : "filled"}>
                {step.key === "import" ? t("Use a file of your own") : step.action}
              </Button>
            ) : (
              <Anchor component={Link} to={step.to} size="sm" onClick={() => leave(step.key)} aria-label={`${step.action}: ${step.title}`}>
                {step.done ? t("again") : step.action}
              </Anchor>
            )}
          </li>
        ))}
      </ol>
      {next === null && (
        <Alert color="teal" title={t("That was all of it")}>
          <Group gap="xs">
            <Text size="sm">{t("The policy has been trained against your own reward model.")}</Text>
            <Anchor component={Link} to="/runs" size="sm">
              {t("See its run")}
            </Anchor>
          </Group>
        </Alert>
      )}
    </>
  );
}
