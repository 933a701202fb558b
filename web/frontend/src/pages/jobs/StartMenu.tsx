import { Button, Menu } from "@mantine/core";
import { IconChevronDown } from "@tabler/icons-react";
import { Link } from "react-router";

import { useAllows } from "../../api/session";
import { t } from "../../i18n";
import { useKinds, type Area } from "./useJobs";
import { areaTitle, titleOf } from "./words";

/** What can be started, by area. */
export function StartMenu({ areas, label }: { areas: Area[]; label?: string }) {
  const kinds = useKinds().data?.kinds ?? [];
  const allowed = useAllows("curate");
  if (!allowed) return null;
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <Button rightSection={<IconChevronDown size={14} />}>{label ?? t("Start a job")}</Button>
      </Menu.Target>
      <Menu.Dropdown mah="calc(100vh - 110px)" style={{ overflowY: "auto" }}>
        {areas.map((area) => [
          <Menu.Label key={area}>{areaTitle(area)}</Menu.Label>,
          ...kinds
            .filter((kind) => kind.area === area)
            .map((kind) => (
              <Menu.Item key={kind.name} component={Link} to={`/jobs/new/${kind.name}`}>
                {titleOf(kind.name, kind.title)}
              </Menu.Item>
            )),
        ])}
      </Menu.Dropdown>
    </Menu>
  );
}
