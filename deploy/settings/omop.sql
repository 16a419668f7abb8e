-- Study columns from the tables of the OMOP Common Data Model (5.3 and 5.4), one row a person.
-- docs/how-to/omop.md says how an agent reads it. Copy the parts you approve, as often as you need them, each
-- with a concept set of its own in agent.toml: (:condition) stands for the numbers of the set `condition`.
--
-- Everyone in `person` is a row, whatever was recorded of them. A WHERE on a diagnosis, a date or a value would let
-- one person's record change n, which is public: let a study compare groups by the columns instead.
SELECT
    p.person_id AS person,
    -- Person: whole years at the end of a year that is written here, and never the current date.
    2024 - p.year_of_birth AS age,
    CASE p.gender_concept_id WHEN 8507 THEN 'male' WHEN 8532 THEN 'female' END AS sex,
    -- Condition: whether it was ever recorded.
    CASE WHEN conditions.person_id IS NULL THEN 'no' ELSE 'yes' END AS had_condition,
    -- Measurement: the newest value in the one unit that the set `unit` names; missing where there is none.
    measured.value_as_number AS measured,
    -- Drug exposure: how many were recorded.
    COALESCE(drugs.exposures, 0) AS exposures,
    -- Visit: how many were recorded.
    COALESCE(visits.stays, 0) AS stays
FROM person p
LEFT JOIN (
    SELECT DISTINCT o.person_id
    FROM condition_occurrence o
    JOIN concept_ancestor a ON a.descendant_concept_id = o.condition_concept_id
    WHERE a.ancestor_concept_id IN (:condition)
) conditions ON conditions.person_id = p.person_id
LEFT JOIN (
    SELECT m.person_id, m.value_as_number,
        ROW_NUMBER() OVER (
            PARTITION BY m.person_id ORDER BY m.measurement_date DESC, m.measurement_id DESC
        ) AS place
    FROM measurement m
    WHERE m.unit_concept_id IN (:unit)
        AND m.measurement_concept_id IN (
            SELECT a.descendant_concept_id FROM concept_ancestor a WHERE a.ancestor_concept_id IN (:measurement)
        )
) measured ON measured.person_id = p.person_id AND measured.place = 1
LEFT JOIN (
    SELECT d.person_id, COUNT(*) AS exposures
    FROM drug_exposure d
    WHERE d.drug_concept_id IN (
        SELECT a.descendant_concept_id FROM concept_ancestor a WHERE a.ancestor_concept_id IN (:drug)
    )
    GROUP BY d.person_id
) drugs ON drugs.person_id = p.person_id
LEFT JOIN (
    SELECT v.person_id, COUNT(*) AS stays
    FROM visit_occurrence v
    WHERE v.visit_concept_id IN (:visit)
    GROUP BY v.person_id
) visits ON visits.person_id = p.person_id
