import { Text, Title } from "@mantine/core";

import { t } from "../../../i18n";
import type { Result } from "./results";

/** What was measured, in the protocol's own words. */
export function Protocol({ result }: { result: Result }) {
  return (
    <section aria-label={t("Protocol")}>
      <Title order={3} mb={4}>{t("Protocol")}</Title>
      <dl style={{ margin: 0, display: "grid", gridTemplateColumns: "minmax(90px, max-content) 1fr", gap: "2px 12px" }}>
        {Object.entries(result.protocol).map(([name, description]) => (
          <div key={name} style={{ display: "contents" }}>
            <Text component="dt" size="xs" className="dim">
              {name.replaceAll("_", " ")}
            </Text>
            <Text component="dd" size="xs" m={0} style={{ overflowWrap: "anywhere" }}>
              {description}
            </Text>
          </div>
        ))}
      </dl>
    </section>
  );
}
